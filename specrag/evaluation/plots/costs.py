"""What a pass of the target costs by its size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specrag.evaluation.plots.canvas import legend_below, new_axes, style

_CURVE_POINTS = 64


def pass_costs(figures: Mapping[str, Any]) -> Any:
    """Draws what a pass costs over the number of tokens in it, beside as many single passes.

    Args:
        figures: Of a report of kind ``speed`` or ``tuning``.
    """
    costs = figures.get("costs") or {}
    pairs = zip(costs.get("num_nodes") or (), costs.get("relative") or (), strict=False)
    known = [(size, cost) for size, cost in pairs if size and cost is not None]
    if len(known) < 2:
        return None
    sizes, relative = zip(*sorted(known), strict=True)
    figure, axes = new_axes("tokens in a pass, N", "T(N) / T(1)", "What a pass of the target costs")
    axes.plot(sizes, relative, label="measured", markersize=6, **style(0))
    # On this scale the line is a curve, so it needs more points than were measured.
    largest = max(sizes)
    straight = [largest ** (step / _CURVE_POINTS) for step in range(_CURVE_POINTS + 1)]
    axes.plot(straight, straight, color="#555555", linestyle=":", label="N passes of one token")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set_ylim(0, 1.35 * max(relative))
    _milliseconds(axes, costs)
    legend_below(axes)
    return figure


def _milliseconds(axes: Any, costs: Mapping[str, Any]) -> None:
    """Adds a scale in milliseconds where a report tells what one token takes."""
    pairs = zip(costs.get("ms") or (), costs.get("relative") or (), strict=False)
    known = [time / cost for time, cost in pairs if time and cost]
    if known:
        single = sum(known) / len(known)
        scale = axes.secondary_yaxis(
            "right", functions=(lambda cost: cost * single, lambda time: time / single)
        )
        scale.set_ylabel("milliseconds")
