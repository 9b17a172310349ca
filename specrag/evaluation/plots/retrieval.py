"""How well documents are found, and how long a lookup takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from specrag.evaluation.plots.canvas import filling, legend_below, named, new_axes, style
from specrag.evaluation.plots.marks import Point, bar_label, counted, reach, share, spread

_RECALL = re.compile(r"recall@(\d+)")
_RANKING = re.compile(r"(ndcg|mrr)@\d+")
_NAMES = {"ndcg": "nDCG", "mrr": "MRR"}
_TITLE = "How well documents are found"


def recall_by_depth(figures: Mapping[str, Any]) -> Any:
    """Draws the share of relevant documents among the first k, for each retriever.

    Args:
        figures: Of a report of kind ``retrieval``.
    """
    curves = {name: _recalls(found) for name, found in _retrievers(figures).items()}
    if not any(len(points) > 1 for points in curves.values()):
        return None
    label = "relevant documents found (%)"
    title = counted(_TITLE, _counts(figures), "questions")
    figure, axes = new_axes("documents looked at, k (logarithmic scale)", label, title)
    for number, (name, points) in enumerate(curves.items()):
        # Side by side, or the intervals would cover each other.
        places = [k * (1 + 0.03 * (number - (len(curves) - 1) / 2)) for k in points]
        values = [point.value for point in points.values()]
        look = {"label": named(name), "markersize": 6, "capsize": 3, **style(number)}
        if points:
            axes.errorbar(places, values, yerr=reach(list(points.values())), **look)
    axes.set_xscale("log")
    ticks = sorted({k for points in curves.values() for k in points})
    axes.set_xticks(ticks, [str(k) for k in ticks])
    axes.minorticks_off()
    axes.set_ylim(0, 102)
    legend_below(axes)
    return figure


def ranking_by_retriever(figures: Mapping[str, Any]) -> Any:
    """Draws the measures that look at the order of what is found, for each retriever.

    Args:
        figures: Of a report of kind ``retrieval``.
    """
    found = _retrievers(figures)
    measures = [
        name
        for name in dict.fromkeys(name for measured in found.values() for name in measured)
        if _RANKING.fullmatch(name) and any(share(each.get(name)) for each in found.values())
    ]
    if not measures:
        return None
    title = counted(_TITLE, _counts(figures), "questions")
    figure, axes = new_axes("", "mean over questions (%)", title, 3.6)
    width = 0.84 / len(found)
    for number, (name, measured) in enumerate(found.items()):
        points = {key: point for key in measures if (point := share(measured.get(key)))}
        shift = (number - (len(found) - 1) / 2) * width
        places = [measures.index(key) + shift for key in points]
        heights = [point.value for point in points.values()]
        look = {"label": named(name), "capsize": 3, **filling(number)}
        axes.bar(places, heights, 0.9 * width, yerr=reach(list(points.values())), **look)
        for place, point in zip(places, points.values(), strict=True):
            bar_label(axes, place, max(point.value, point.high or 0.0), f"{point.value:.1f}")
    axes.set_xticks(range(len(measures)), [_written(name) for name in measures])
    axes.set_xlim(-0.5, len(measures) - 0.5)
    axes.grid(visible=False, axis="x")
    axes.set_ylim(bottom=0)
    legend_below(axes)
    return figure


def lookup_by_retriever(figures: Mapping[str, Any]) -> Any:
    """Draws median and slow ends of the time of a lookup, for each retriever.

    Args:
        figures: Of a report of kind ``retrieval``.
    """
    rows = ((named(name), times or {}) for name, times in _part(figures, "latency_ms").items())
    return spread("Time of a lookup by retriever", "milliseconds per lookup", rows)


def _recalls(found: Mapping[str, Any]) -> dict[int, Point]:
    points = {}
    for name, figure in found.items():
        match, point = _RECALL.fullmatch(name), share(figure)
        if match is not None and point is not None:
            points[int(match[1])] = point
    return dict(sorted(points.items()))


def _counts(figures: Mapping[str, Any]) -> list[int | None]:
    return [
        (figure or {}).get("num_items")
        for found in _retrievers(figures).values()
        for figure in found.values()
    ]


def _retrievers(figures: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    return {name: found or {} for name, found in _part(figures, "retrievers").items()}


def _part(figures: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return figures.get(name) or {}


def _written(measure: str) -> str:
    name, _, k = measure.partition("@")
    return f"{_NAMES[name]}@{k}"
