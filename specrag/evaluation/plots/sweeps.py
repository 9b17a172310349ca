"""How the settings of a draft change its speed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specrag.evaluation.plots.canvas import SMALL, legend_below, named, new_axes, style
from specrag.evaluation.plots.marks import Point, measured, reach
from specrag.extras import require_extra

_Setting = tuple[str, int, int]  # policy, tokens, branching
_CHAIN = 1


def gamma_sweep(figures: Mapping[str, Any]) -> Any:
    """Draws the speed over the length of fixed chains, a line for each drafter.

    Args:
        figures: Of a report of kind ``tuning``.
    """
    lines: dict[str, list[tuple[int, Point]]] = {}
    for row in figures.get("sweep") or ():
        fixed = row.get("policy", "fixed") == "fixed" and row.get("branching", _CHAIN) == _CHAIN
        if fixed and (point := measured(row, "speedup")):
            lines.setdefault(row["drafter"], []).append((row["num_speculative_tokens"], point))
    if not lines:
        return None
    title = "How much to draft: chains of a fixed length"
    figure, axes = new_axes("drafted tokens a pass", "times plain decoding", title)
    axes.axhline(1.0, color="black", linewidth=1.2, linestyle="--", label="plain")
    for number, (drafter, found) in enumerate(lines.items()):
        found.sort(key=lambda pair: pair[0])
        _line(axes, number, drafter, found)
    axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    legend_below(axes)
    return figure


def _line(axes: Any, number: int, drafter: str, found: list[tuple[int, Point]]) -> None:
    lengths, points = zip(*found, strict=True)
    values = [point.value for point in points]
    best = max(range(len(values)), key=values.__getitem__)
    look = style(number)
    label = f"{named(drafter)}: best {values[best]:.2f} at {lengths[best]}"
    # Intervals of several drafters at one length would hide each other.
    places = [length + 0.07 * number for length in lengths]
    axes.errorbar(
        places, values, yerr=reach(points), label=label, markersize=4, elinewidth=0.8, capsize=2,
        **look,
    )  # fmt: skip
    axes.plot(
        [places[best]], [values[best]], marker="o", markersize=13, markerfacecolor="none",
        markeredgecolor=look["color"], linestyle="",
    )  # fmt: skip


def tree_sweep(figures: Mapping[str, Any]) -> Any:
    """Draws the speed of chains and trees as a map: drafters by settings.

    Args:
        figures: Of a report of kind ``tuning``.
    """
    found: dict[tuple[str, _Setting], float] = {}
    for row in figures.get("sweep") or ():
        if row.get("speedup") is not None and row.get("branching") is not None:
            setting = (str(row.get("policy")), row["num_speculative_tokens"], row["branching"])
            found[row["drafter"], setting] = row["speedup"]
    settings = _with_trees({setting for _, setting in found})
    drafters = list(dict.fromkeys(name for name, setting in found if setting in settings))
    if not drafters:
        return None
    label = "branching: drafted children of a node (1 is a chain)"
    figure, axes = new_axes(
        label, "", "Chains and trees, times plain decoding", 2.0 + 0.36 * len(drafters)
    )
    cells = [
        [found.get((name, setting), float("nan")) for setting in settings] for name in drafters
    ]
    shades = _shades([value for row in cells for value in row if value == value])
    # Squares, not an image, so that they stay sharp; their figures make a colour bar needless.
    edges = [[place - 0.5 for place in range(len(side) + 1)] for side in (settings, drafters)]
    axes.pcolormesh(*edges, cells, cmap="PuOr_r", norm=shades)
    axes.set_ylim(len(drafters) - 0.5, -0.5)
    best = max(value for row in cells for value in row if value == value)
    for place, row in enumerate(cells):
        for column, value in enumerate(row):
            if value == value:
                _cell(axes, column, place, value, bold=value == best, norm=shades)
    axes.set_xticks(range(len(settings)), [str(width) for _, _, width in settings])
    _head(axes, settings)
    axes.set_yticks(range(len(drafters)), [named(name) for name in drafters])
    axes.grid(visible=False)
    return figure


def _with_trees(settings: set[_Setting]) -> list[_Setting]:
    """Returns the settings that differ from another one in nothing but the branching."""
    kinds = [(policy, tokens) for policy, tokens, _ in settings]
    return sorted(each for each in settings if kinds.count(each[:2]) > 1)


def _head(axes: Any, settings: list[_Setting]) -> None:
    """Writes over the columns what those that differ in branching alone have in common."""
    kinds = [each[:2] for each in settings]
    starts = [place for place, kind in enumerate(kinds) if kind not in kinds[:place]]
    middles = [start + (kinds.count(kinds[start]) - 1) / 2 for start in starts]
    names = [named(kinds[start][0].replace("_", " ")).replace(" ", "\n") for start in starts]
    names = [f"{name}\n{kinds[at][1]} tokens" for name, at in zip(names, starts, strict=True)]
    above = axes.secondary_xaxis("top")
    above.set_xticks(middles, names, fontsize=SMALL)
    above.tick_params(length=0)
    for start in starts[1:]:
        axes.axvline(start - 0.5, color="white", linewidth=4)


def _shades(values: list[float]) -> Any:
    """White is plain decoding; both sides of it reach equally far."""
    far = max(0.05, *(abs(value - 1) for value in values))
    return require_extra("matplotlib.colors", "eval").Normalize(1 - far, 1 + far)


def _cell(axes: Any, x: int, y: int, value: float, *, bold: bool, norm: Any) -> None:
    dark = not 0.12 < norm(value) < 0.88
    axes.text(
        x, y, f"{value:.2f}", ha="center", va="center", fontsize=SMALL,
        color="white" if dark else "black", fontweight="bold" if bold else "normal",
    )  # fmt: skip
