"""How much of what is drafted is accepted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from specrag.evaluation.plots.canvas import legend_below, named, new_axes
from specrag.evaluation.plots.marks import arm_name, arm_styles, counted, overall

_FEW = 30  # drafts that say little


def acceptance_by_depth(figures: Mapping[str, Any]) -> Any:
    """Draws the share of drafts that were accepted to each depth.

    Args:
        figures: Of a report of kind ``speed`` or ``tuning``.
    """
    rows = [
        row
        for row in overall(figures)
        if any(share is not None for share in row.get("acceptance_by_depth") or ())
    ]
    if not rows:
        return None
    title = counted("Acceptance by depth", (row.get("num_prompts") for row in rows), "prompts")
    label = "drafts accepted at least that far (%)"
    figure, axes = new_axes("depth in the draft (tokens)", label, title)
    looks = arm_styles(row["drafter"] for row in rows)
    for row in rows:
        shares = row["acceptance_by_depth"]
        values = [math.nan if value is None else 100 * value for value in shares]
        depths = range(1, len(values) + 1)
        axes.plot(
            depths, values, label=arm_name(row["drafter"]), markersize=5, **looks[row["drafter"]]
        )
    axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    axes.set_ylim(0, 100)
    legend_below(axes)
    return figure


def acceptance_by_task(figures: Mapping[str, Any]) -> Any:
    """Draws the acceptance of first drafted tokens by task beside the field's usual ranges.

    Args:
        figures: Of a report of kind ``speed``.
    """
    rows = [row for row in figures.get("tasks") or () if row.get("acceptance") is not None]
    if not rows:
        return None
    usual = {row["task"]: (row.get("usual_low"), row.get("usual_high")) for row in rows}
    drafters = list(dict.fromkeys(row["drafter"] for row in rows))
    height = 1.0 + len(usual) * (0.2 + 0.11 * max(3, len(drafters)))
    label = "first drafted tokens accepted (%)"
    figure, axes = new_axes(label, "", "Acceptance by task", height)
    tasks = list(usual)
    looks = arm_styles(drafters)
    for number, drafter in enumerate(drafters):
        shift = 0.7 * ((number + 0.5) / len(drafters) - 0.5)
        own = [row for row in rows if row["drafter"] == drafter]
        look = {**looks[drafter], "linestyle": "", "markersize": 7}
        # The first one is drawn as nothing: hollow marks must not stand in the legend.
        axes.plot([], [], label=arm_name(drafter), **look)
        for row in own:
            few = row.get("num_drafts") is not None and row["num_drafts"] < _FEW
            place = tasks.index(row["task"]) + shift
            fill = {"markerfacecolor": "white"} if few else {}
            axes.plot([100 * row["acceptance"]], [place], **look, **fill)
    _bands(axes, usual)
    if any((row.get("num_drafts") or _FEW) < _FEW for row in rows):
        axes.set_xlabel(f"{label}; hollow: of fewer than {_FEW} drafts")
    axes.set_xlim(0, 102)
    axes.set_ylim(len(tasks) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    legend_below(axes)
    return figure


def _bands(axes: Any, usual: Mapping[str, tuple[float | None, float | None]]) -> None:
    """Draws the usual ranges behind the figures, and writes them under the tasks' names."""
    names, told = [], False
    for place, (task, (low, high)) in enumerate(usual.items()):
        if low is None or high is None:
            names.append(named(task))
            continue
        names.append(f"{named(task)}\nusual: {100 * low:.0f} to {100 * high:.0f} %")
        label = None if told else "usual for a well matched draft model"
        axes.barh(
            [place], [100 * (high - low)], 0.9, left=[100 * low], color="#D9D9D9", label=label,
            zorder=0.5,
        )  # fmt: skip
        told = True
    axes.set_yticks(range(len(names)), names)
