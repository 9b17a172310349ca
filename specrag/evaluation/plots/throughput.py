"""How fast each arm decodes, by kind of prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specrag.evaluation.plots.canvas import COLOURS, legend_below, named, new_axes
from specrag.evaluation.plots.marks import (
    ALL,
    PLAIN,
    Point,
    arm_name,
    arm_styles,
    bar_label,
    counted,
    measured,
    reach,
)

_Points = dict[str, dict[str, Point]]


def speed_by_drafter(figures: Mapping[str, Any]) -> Any:
    """Draws tokens per second of each arm, category by category.

    Args:
        figures: Of a report of kind ``speed`` or ``tuning``.
    """
    rows = _rows(figures)
    title = counted("Speed of decoding", _counts(rows), "prompts")
    return _drawn(_points(rows, "tokens_per_second"), "tokens per second", title)


def speedup_by_drafter(figures: Mapping[str, Any]) -> Any:
    """Draws how many times as fast as plain decoding each arm is, category by category.

    Args:
        figures: Of a report of kind ``speed`` or ``tuning``.
    """
    rows = [row for row in _rows(figures) if row["drafter"] != PLAIN]
    title = counted("Speed beside plain decoding", _counts(rows), "prompts")
    return _drawn(_points(rows, "speedup"), "times plain decoding", title, 1.0)


def _rows(figures: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns all rows; those of a tuning report with plain decoding before them."""
    if figures.get("results"):
        return list(figures["results"])
    rows = list(figures.get("drafters") or ())
    plain = figures.get("plain")
    return [{**plain, "drafter": PLAIN}, *rows] if plain and rows else rows


def _counts(rows: Sequence[Mapping[str, Any]]) -> list[int | None]:
    return [row.get("num_prompts") for row in rows]


def _points(rows: Sequence[Mapping[str, Any]], name: str) -> _Points:
    """Returns the figures by category and arm; all prompts of one category are told once."""
    found: _Points = {}
    for row in rows:
        if point := measured(row, name):
            found.setdefault(row.get("category") or ALL, {})[row["drafter"]] = point
    if len(found) == 2:
        found.pop(ALL, None)
    return found


def _drawn(points: _Points, label: str, title: str, line: float | None = None) -> Any:
    if not points:
        return None
    if len(points) == 1:
        figure, axes = _bars(next(iter(points.values())), label, title)
    else:
        figure, axes = _dots(points, label, title)
    if line is not None:
        axes.axvline(line, color="black", linewidth=1.2, linestyle="--", label="plain", zorder=1)
    legend_below(axes)
    return figure


def _bars(arms: Mapping[str, Point], label: str, title: str) -> tuple[Any, Any]:
    figure, axes = new_axes(label, "", title, 1.0 + 0.34 * len(arms))
    points = list(arms.values())
    places = range(len(points))
    colours = ["#999999" if arm == PLAIN else COLOURS[0] for arm in arms]
    widths = [point.value for point in points]
    axes.barh(places, widths, 0.66, xerr=reach(points), capsize=3, color=colours)
    for place, point in zip(places, points, strict=True):
        end = max(point.value, point.high or 0.0)
        digits = 1 if point.value >= 10 else 2
        bar_label(axes, end, place, f"{point.value:.{digits}f}", beside=True)
    axes.set_yticks(places, [arm_name(arm) for arm in arms])
    axes.set_ylim(len(points) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, 1.12 * max(max(point.value, point.high or 0.0) for point in points))
    return figure, axes


def _dots(points: _Points, label: str, title: str) -> tuple[Any, Any]:
    """One band a category, in which the arms stand below each other: bars would be too thin."""
    arms = list(dict.fromkeys(arm for found in points.values() for arm in found))
    height = 1.0 + len(points) * (0.12 + 0.075 * max(3, len(arms)))
    figure, axes = new_axes(label, "", title, height)
    looks = arm_styles(arms)
    for number, arm in enumerate(arms):
        shift = 0.8 * ((number + 0.5) / len(arms) - 0.5)
        own = [(place, found[arm]) for place, found in enumerate(points.values()) if arm in found]
        values = [point for _, point in own]
        look = {**looks[arm], "linestyle": "", "markersize": 8 if arm == PLAIN else 5.5}
        axes.errorbar(
            [point.value for point in values],
            [place + shift for place, _ in own],
            xerr=reach(values),
            capsize=0,
            elinewidth=1.2,
            label=arm_name(arm),
            **look,
        )
    for place in range(0, len(points), 2):
        axes.axhspan(place - 0.5, place + 0.5, color="#F2F2F2", zorder=0)
    names = ["all prompts" if name == ALL else named(name.replace("_", " ")) for name in points]
    axes.set_yticks(range(len(points)), names)
    axes.set_ylim(len(points) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlim(left=0)
    return figure, axes
