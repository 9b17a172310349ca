"""What a retrieval run found, as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specrag.evaluation.reports.report import Report
from specrag.evaluation.reports.terminal import aligned, interval_text, points_text

_MOST_PAIRS = 3  # side by side in a hundred columns


def retrieval_table(report: Report) -> str:
    """Returns the main figures.

    Args:
        report: Of kind ``retrieval``.
    """
    figures = report.figures
    found = figures["retrievers"]
    measures = dict.fromkeys(name for measured in found.values() for name in measured)
    rows = [["measure", *found]]
    rows += [
        [measure, *(interval_text(measured.get(measure)) for measured in found.values())]
        for measure in measures
    ]
    rows += [
        [f"lookup_ms, {key}", *(f"{times[key]:.1f}" for times in figures["latency_ms"].values())]
        for key in ("p50", "p90", "p99")
    ]
    sizes = ", ".join(f"{count} {name}" for name, count in figures["collection"].items())
    notes = [f"note: {note}" for note in report.configuration.get("notes", ())]
    differences = _differences(figures["differences"])
    return "\n".join([report.title, sizes, "", *aligned(rows), *differences, "", *notes])


def _differences(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    pairs = list(dict.fromkeys((row["first"], row["second"]) for row in rows))[:_MOST_PAIRS]
    if not pairs:
        return []
    told = {(row["first"], row["second"], row["measure"]): points_text(row) for row in rows}
    table = [["difference in points", *(f"{second} less {first}" for first, second in pairs)]]
    for measure in dict.fromkeys(row["measure"] for row in rows):
        table.append([measure, *(told[(*pair, measure)] for pair in pairs)])
    return ["", *aligned(table), "* the interval leaves out no change"]
