"""How a training went: its loss, and how many drafted tokens are accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specrag.evaluation.plots.canvas import dress, legend_below, new_figure, style

_HEIGHT = 3.6  # inches
_ACCEPTED = "accepted_"


def training_curves(history: Sequence[Mapping[str, Any]], title: str) -> Any:
    """Draws loss and acceptance over the steps of a training; None without figures.

    Args:
        history: Rows with ``step``, ``train`` and ``held_out``, as a training returns them.
        title: Above the picture.
    """
    if not history:
        return None
    steps = [row["step"] for row in history]
    figure = new_figure(title, _HEIGHT)
    left, right = figure.subplots(1, 2)
    dress(left, "step", "loss (nats a token)")
    for number, (name, label) in enumerate((("train", "training"), ("held_out", "held out"))):
        values = [row[name]["loss"] for row in history]
        left.plot(steps, values, label=label, markersize=3, **style(number))
    legend_below(left)
    dress(right, "step", "drafted tokens accepted (%)")
    depths = sorted(key for key in history[-1]["held_out"] if key.startswith(_ACCEPTED))
    for number, key in enumerate(depths):
        values = [100 * row["held_out"][key] for row in history]
        depth = int(key.removeprefix(_ACCEPTED)) + 1
        right.plot(steps, values, label=f"depth {depth}", markersize=3, **style(number))
    right.set_ylim(bottom=0)
    legend_below(right)
    return figure
