"""What several pictures draw alike: figures with intervals, and the spread of times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specrag.evaluation.plots.canvas import SMALL, legend_below, named, new_axes, style

ALL = "all"
"""The category of the rows over all prompts."""

PLAIN = "none"
"""The arm that drafts nothing."""

_PERCENTILES = ("p50", "p90", "p99")
_WIDE = 12  # times; what is further apart needs a logarithmic scale


@dataclass(frozen=True, slots=True)
class Point:
    """A figure and its interval.

    Attributes:
        value: The figure.
        low: Lower end of the interval; None where it has none.
        high: Upper end.
    """

    value: float
    low: float | None = None
    high: float | None = None


def share(found: Mapping[str, Any] | None) -> Point | None:
    """Returns a share in per cent.

    Args:
        found: With ``value``, ``low`` and ``high``, all of which may be None.
    """
    if not found or found.get("value") is None:
        return None
    ends = [None if found.get(end) is None else 100 * found[end] for end in ("low", "high")]
    return Point(100 * found["value"], *ends)


def measured(row: Mapping[str, Any], name: str) -> Point | None:
    """Returns a figure of a row with the interval that stands beside it.

    Args:
        row: With ``name``, and maybe ``name_low`` and ``name_high``.
        name: Of the figure.
    """
    if row.get(name) is None:
        return None
    return Point(row[name], row.get(f"{name}_low"), row.get(f"{name}_high"))


def reach(points: Sequence[Point]) -> list[list[float]]:
    """Returns how far the intervals reach down and up; NaN, which draws nothing, without one.

    Args:
        points: Figures, one an error bar.
    """
    down, up = [], []
    for point in points:
        known = point.low is not None and point.high is not None
        down.append(max(0.0, point.value - (point.low or 0.0)) if known else math.nan)
        up.append(max(0.0, (point.high or 0.0) - point.value) if known else math.nan)
    return [down, up]


def arm_name(drafter: str) -> str:
    """Returns what an arm is called in a picture.

    Args:
        drafter: Its name in the figures.
    """
    return "plain" if drafter == PLAIN else named(drafter)


def arm_styles(drafters: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Returns the looks of arms; plain decoding is grey, and costs the others no colour.

    Args:
        drafters: Names in the figures; each may come up several times.
    """
    names = dict.fromkeys(name for name in drafters if name != PLAIN)
    plain = {"color": "#555555", "marker": "|", "linestyle": "--"}
    return {name: style(number) for number, name in enumerate(names)} | {PLAIN: plain}


def counted(title: str, counts: Iterable[int | None], what: str) -> str:
    """Returns a title that tells the size of the sample.

    Args:
        title: Of a picture.
        counts: Sizes of its parts; the largest is told.
        what: Is counted.
    """
    most = max((count for count in counts if count), default=0)
    return f"{title} ({most} {what})" if most else title


def overall(figures: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns one row an arm, over all prompts; none where a report tells categories alone.

    Args:
        figures: Of a report of kind ``speed`` or ``tuning``.
    """
    rows = list(figures.get("results") or figures.get("drafters") or ())
    if len({row.get("category") for row in rows}) == 1:
        return rows
    return [row for row in rows if row.get("category") == ALL]


def spread(title: str, unit: str, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Any:
    """Draws median and slow ends of times, a line for each name.

    Args:
        title: Above the picture.
        unit: Of the times.
        rows: Names and their ``p50``, ``p90`` and ``p99``; who lacks one of them is left out.

    Returns:
        The picture, None if there is nothing to show.
    """
    known: list[tuple[str, list[float]]] = [
        (name, [times[key] for key in _PERCENTILES])
        for name, times in rows
        if all(times.get(key) is not None for key in _PERCENTILES)
    ]
    if not known:
        return None
    figure, axes = new_axes(unit, "", title, 1.2 + 0.36 * len(known))
    for place, (_, values) in enumerate(known):
        axes.plot([values[0], values[-1]], [place, place], color="#BBBBBB", linewidth=3, zorder=1)
    for number, key in enumerate(_PERCENTILES):
        look = {**style(number), "linestyle": ""}
        ends = [values[number] for _, values in known]
        axes.plot(ends, range(len(known)), label=key.upper(), markersize=8, **look)
    axes.set_yticks(range(len(known)), [name for name, _ in known])
    axes.set_ylim(len(known) - 0.5, -0.5)
    _scale(axes, [value for _, values in known for value in values])
    legend_below(axes)
    return figure


def _scale(axes: Any, values: Sequence[float]) -> None:
    low, high = min(values), max(values)
    if low > 0 and high > _WIDE * low:
        axes.set_xscale("log")
        axes.set_xlabel(f"{axes.get_xlabel()}, logarithmic scale")
        axes.xaxis.get_major_locator().set_params(subs=(1, 2, 5))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.set_xlim(0.8 * low, 1.25 * high)
    else:
        axes.set_xlim(left=0)


def bar_label(axes: Any, x: float, y: float, text: str, *, beside: bool = False) -> None:
    """Writes a figure at the end of its bar.

    Args:
        axes: Of the bar.
        x: Where the bar, or its interval, ends.
        y: The same.
        text: The figure.
        beside: Whether to the right of it, instead of above.
    """
    axes.annotate(
        text,
        (x, y),
        textcoords="offset points",
        xytext=(4, 0) if beside else (0, 3),
        ha="left" if beside else "center",
        va="center" if beside else "bottom",
        fontsize=SMALL,
    )
