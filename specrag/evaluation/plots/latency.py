"""Where the time goes, and how slow the slow cases are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specrag.evaluation.plots.canvas import filling, legend_below, named, new_axes
from specrag.evaluation.plots.marks import arm_name, bar_label, counted, overall, spread

_STAGES = ("gate_ms", "lookup_ms", "prefill_ms", "decode_ms")


def stages(figures: Mapping[str, Any]) -> Any:
    """Draws the mean time of each stage of a question, end to end, for each mode.

    Args:
        figures: Of a report of kind ``qa``.
    """
    spent = {
        mode: [(found.get(stage) or {}).get("mean") or 0.0 for stage in _STAGES]
        for mode, found in (figures.get("latency_ms") or {}).items()
    }
    if not any(sum(times) for times in spent.values()):
        return None
    title = "Where the time of a question goes"
    figure, axes = new_axes("mean milliseconds per question", "", title, 1.0 + 0.45 * len(spent))
    left = [0.0] * len(spent)
    for number, stage in enumerate(_STAGES):
        times = [each[number] for each in spent.values()]
        label = stage.removesuffix("_ms")
        axes.barh(range(len(spent)), times, 0.62, left=left, label=label, **filling(number))
        left = [before + time for before, time in zip(left, times, strict=True)]
    for place, total in enumerate(left):
        bar_label(axes, total, place, f"{total:.0f}", beside=True)
    axes.set_yticks(range(len(spent)), [f"mode {named(mode)}" for mode in spent])
    axes.set_ylim(len(spent) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.08)
    legend_below(axes)
    return figure


def latency_by_mode(figures: Mapping[str, Any]) -> Any:
    """Draws the median and the slow ends of the time of a question for each mode.

    Args:
        figures: Of a report of kind ``qa``.
    """
    spent = figures.get("latency_ms") or {}
    found = [(f"mode {named(mode)}", each.get("total_ms") or {}) for mode, each in spent.items()]
    return spread("Time of a question", "milliseconds per question", found)


def latency_per_token(figures: Mapping[str, Any]) -> Any:
    """Draws the median and the slow ends of the time of a token for each arm.

    Args:
        figures: Of a report of kind ``speed``.
    """
    rows = overall(figures)
    found = [(arm_name(row["drafter"]), row.get("ms_per_token") or {}) for row in rows]
    title = counted("Time per token", (row.get("num_prompts") for row in rows), "prompts")
    return spread(title, "milliseconds per token", found)
