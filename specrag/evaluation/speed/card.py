"""What the card of a drafter tells of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specrag.errors import ConfigError, InputError, suggest
from specrag.evaluation.reports.report import Report
from specrag.evaluation.speed.engine_arm import PLAIN


def measured(report: Report, drafter: str = "") -> dict[str, Any]:
    """Returns what a benchmark says of one drafter, category by category.

    Args:
        report: Of `specrag bench`.
        drafter: As the report names it; empty where it has only one beside plain decoding.

    Raises:
        InputError: The report is of another kind.
        ConfigError: It has no such drafter, or several.
    """
    if report.kind != "speed":
        raise InputError(f"a report of {report.kind}, not of speed", hint="run specrag bench")
    rows = report.figures["results"]
    names = list(dict.fromkeys(row["drafter"] for row in rows if row["drafter"] != PLAIN))
    if not drafter and len(names) > 1:
        raise ConfigError(
            f"the report measures {len(names)} drafters: {', '.join(names)}",
            hint="name one with --drafter",
        )
    name = drafter or "".join(names)
    if name not in names:
        raise ConfigError(f"the report has no drafter {name!r}; {suggest(name, names)}")
    settings = report.configuration
    return {
        "drafter": name,
        "sets": [found["name"] for found in settings["datasets"]],
        "max_tokens": settings["max_tokens"],
        "temperature": settings.get("temperature", 0.0),
        "quantization": settings.get("quantization", "none"),
        "machine": report.machine,
        "commit": report.commit,
        "command": report.command,
        "categories": {row["category"]: _row(row) for row in rows if row["drafter"] == name},
    }


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("num_prompts", "num_tokens", "mean_acceptance_length", "acceptance_by_depth", "speedup")
    return {key: row[key] for key in kept if key in row}
