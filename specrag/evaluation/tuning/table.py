"""What tuning found, as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from specrag.evaluation.reports.report import Report
from specrag.evaluation.reports.terminal import aligned

_WIDTH = 100


def tuning_table(report: Report) -> str:
    """Returns the main figures and the advice.

    Args:
        report: Of kind ``tuning``.
    """
    figures = report.figures
    return "\n".join(
        [
            report.title,
            "",
            *aligned(_costs(figures["costs"])),
            "",
            *aligned(_drafters(figures["drafters"])),
            "",
            f"settings, by speed ({len(figures['sweep'])} tried)",
            *aligned(_settings(figures["sweep"][:8])),
            "",
            f"final, plain decoding at {figures['plain']['tokens_per_second']:.1f} tokens/s",
            *aligned(_settings(figures["finals"])),
            "",
            *_sentences(figures["advice"]["reasons"], ""),
            *_sentences(report.configuration["notes"], "note: "),
        ]
    )


def _costs(costs: Mapping[str, Any]) -> list[list[str]]:
    rows = [
        ["tokens in a pass", *map(str, costs["num_nodes"])],
        ["cost", *(f"{cost:.2f}" for cost in costs["relative"])],
    ]
    if costs["ms"]:
        rows.append(["about, ms", *(f"{time:.1f}" for time in costs["ms"])])
    return rows


def _drafters(drafters: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    rows = [["drafter", "tok/s", "speedup", "interval", "tau", "accepted by depth", "level"]]
    for row in drafters:
        shares = " ".join(f"{share:.2f}" for share in row["acceptance_by_depth"][:4])
        rows.append([*_speed(row["drafter"], row), shares or "-", f"{row['draft_level']:.2f}"])
    return rows


def _settings(found: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    rows = [["drafter", "policy", "tokens", "branching", "tok/s", "speedup", "interval", "tau"]]
    for row in found:
        settings = [row["policy"], str(row["num_speculative_tokens"]), str(row["branching"])]
        rows.append([row["drafter"], *settings, *_speed("", row)[1:]])
    return rows


def _speed(name: str, row: Mapping[str, Any]) -> list[str]:
    low, high = row["speedup_low"], row["speedup_high"]
    return [
        name,
        _shown(row["tokens_per_second"], ".1f"),
        _shown(row["speedup"], ".2f") + "x",
        "-" if low is None else f"{low:.2f}-{high:.2f}",
        _shown(row["mean_acceptance_length"], ".2f"),
    ]


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _sentences(sentences: Sequence[str], start: str) -> list[str]:
    return [line for said in sentences for line in textwrap.wrap(f"{start}{said}", _WIDTH)]
