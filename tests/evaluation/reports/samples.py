"""Reports of each kind, whole and with hostile names."""

from __future__ import annotations

from typing import Any

from specrag.evaluation.reports.report import Kind, Report
from tests.evaluation.plots.layouts import LAYOUTS, speed

HOSTILE = "</text><script>alert(1)</script>|![x](https://example.org/x.png)`*$a$\n# b"


def report(kind: Kind, **changed: Any) -> Report:
    """Returns a small report."""
    told: dict[str, Any] = {
        "title": f"A small {kind} report",
        "configuration": {"model": "tiny", "notes": ["a first note"]},
        "figures": LAYOUTS[kind](),
        "command": f"specrag measure {kind}",
        "commit": "0" * 40,
    }
    return Report(kind, **(told | changed))


def hostile_report() -> Report:
    """Returns a report all of whose names are an attack."""
    figures = speed(("none", HOSTILE))
    for row in figures["results"]:
        row["category"] = row["category"] if row["category"] == "all" else HOSTILE + row["category"]
    for row in figures["tasks"]:
        row["task"] = HOSTILE
    return report(
        "speed",
        title=HOSTILE,
        figures=figures,
        command=HOSTILE,
        configuration={"model": HOSTILE, HOSTILE: "x", "notes": [HOSTILE]},
    )
