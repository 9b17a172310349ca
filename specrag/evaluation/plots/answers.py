"""How good the answers of each mode are, and what they stand on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specrag.evaluation.plots.canvas import filling, legend_below, named, new_axes
from specrag.evaluation.plots.marks import Point, bar_label, counted, reach, share

_MEASURES = ("exact_match", "f1", "contains")
_GROUNDING = ("retrieval_recall", "answer_in_context", "citation_precision", "citation_recall")
_CROWDED = 14  # bars beside which there is no room for a decimal


def accuracy_by_mode(figures: Mapping[str, Any]) -> Any:
    """Draws the measures of answers side by side for each mode.

    Args:
        figures: Of a report of kind ``qa``.
    """
    return _bars(figures, _MEASURES, "questions (%)", "How good the answers are")


def grounding_by_mode(figures: Mapping[str, Any]) -> Any:
    """Draws the measures of passages and citations for each mode.

    Args:
        figures: Of a report of kind ``qa``.
    """
    label = "mean over questions looked up (%)"
    return _bars(figures, _GROUNDING, label, "What the answers stand on")


def _bars(figures: Mapping[str, Any], measures: Sequence[str], ylabel: str, title: str) -> Any:
    modes = {
        mode: {name: point for name in measures if (point := share(found.get(name)))}
        for mode, found in (figures.get("modes") or {}).items()
    }
    # A mode has its colour in all pictures, whether or not another one has a place in this one.
    numbers = {mode: number for number, mode in enumerate(modes)}
    modes = {mode: points for mode, points in modes.items() if points}
    known = [name for name in measures if any(name in points for points in modes.values())]
    if not known:
        return None
    figure, axes = new_axes("", ylabel, title, 3.6)
    width = 0.84 / len(modes)
    form = ".0f" if len(modes) * len(known) > _CROWDED else ".1f"
    for number, (mode, points) in enumerate(modes.items()):
        shift = (number - (len(modes) - 1) / 2) * width
        places = [known.index(name) + shift for name in points]
        counts = (figures["modes"][mode][name].get("num_items") for name in points)
        label = counted(f"mode {named(mode)}", counts, "questions")
        look = {"label": label, **filling(numbers[mode])}
        _group(axes, places, list(points.values()), 0.9 * width, look)
        for place, point in zip(places, points.values(), strict=True):
            bar_label(axes, place, max(point.value, point.high or 0.0), format(point.value, form))
    axes.set_xticks(range(len(known)), [name.replace("_", " ") for name in known])
    axes.set_xlim(-0.5, len(known) - 0.5)
    axes.grid(visible=False, axis="x")
    axes.set_ylim(bottom=0)
    legend_below(axes)
    return figure


def _group(
    axes: Any,
    places: Sequence[float],
    points: Sequence[Point],
    width: float,
    look: Mapping[str, Any],
) -> None:
    heights = [point.value for point in points]
    axes.bar(places, heights, width, yerr=reach(points), capsize=3, **look)
