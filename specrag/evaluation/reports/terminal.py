"""Reports as text for a terminal, at most a hundred columns wide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specrag.evaluation.reports.report import Report


def qa_table(report: Report) -> str:
    """Returns the main figures of a question-answering run.

    Args:
        report: Of kind ``qa``.
    """
    figures = report.figures
    modes = list(figures["modes"])
    rows = [["measure", *modes]]
    for measure in dict.fromkeys(name for found in figures["modes"].values() for name in found):
        cells = [interval_text(figures["modes"][mode].get(measure)) for mode in modes]
        if any(cell != "-" for cell in cells):
            rows.append([measure, *cells])
    rows += [
        [name, *(f"{figures['usage'][mode][name]:.2f}" for mode in modes)]
        for name in ("lookups", "context_tokens", "completion_tokens")
        if name in figures["usage"][modes[0]]
    ]
    for stage in ("gate_ms", "lookup_ms", "prefill_ms", "decode_ms", "total_ms"):
        found = [figures["latency_ms"][mode][stage] for mode in modes]
        rows.append([f"{stage}, mean (p90)", *(f"{f['mean']:.0f} ({f['p90']:.0f})" for f in found)])
    notes = [f"note: {note}" for note in report.configuration.get("notes", ())]
    return "\n".join([report.title, "", *aligned(rows), *_gain_lines(figures.get("gate")), *notes])


def interval_text(figure: Mapping[str, Any] | None) -> str:
    """Returns a share with its interval, in per cent.

    Args:
        figure: With ``value``, ``low`` and ``high``; None or no value is a dash.
    """
    if figure is None or figure["value"] is None:
        return "-"
    value, low, high = (100 * figure[name] for name in ("value", "low", "high"))
    return f"{value:.1f} ({low:.1f}-{high:.1f})"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a table; the first column stands to the left, the others to the right.

    Args:
        rows: Cells, as many in each row.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in rows
    ]


def _gain_lines(gate: Mapping[str, Any] | None) -> list[str]:
    if not gate:
        return []
    rows = [["looked up first by", "gain captured", "AUROC wrong", "AUROC helps"]]
    for name, gain in gate["gain_captured"].items():
        known = gate["auroc"][name]
        found = [known["wrong"], known["helps"]]
        cells = ["-" if value is None else f"{value:.3f}" for value in found]
        rows.append([name, gain_text(gain), *cells])
    share = f"retrieval helps {gate['helps']:.1%}, hurts {gate['hurts']:.1%} of the questions"
    return ["", share, *aligned(rows)]


def gain_text(figure: Mapping[str, Any]) -> str:
    """Returns a figure that may be negative with its interval, whose ends a dash would blur.

    Args:
        figure: With ``value``, ``low`` and ``high``.
    """
    if figure["value"] is None:
        return "-"
    if figure["low"] is None or figure["high"] is None:
        return f"{figure['value']:+.2f}"
    return f"{figure['value']:+.2f} ({figure['low']:+.2f} to {figure['high']:+.2f})"


def points_text(row: Mapping[str, Any]) -> str:
    """Returns a difference of shares in points with its interval, and a star if that is not zero.

    Args:
        row: With ``difference``, ``low``, ``high`` and ``significant``.
    """
    if row["difference"] is None:
        return "-"
    change, low, high = (100 * row[name] for name in ("difference", "low", "high"))
    return f"{change:+.1f} ({low:+.1f} to {high:+.1f}){'*' if row['significant'] else ''}"
