"""How a training went: its loss, and how many drafted tokens are accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specrag.evaluation.plots.canvas import SMALL, dress, new_figure, style

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
    left.legend(loc="upper right", fontsize=SMALL, frameon=False)
    dress(right, "step", "drafted tokens accepted (%)")
    names = (key for key in history[-1]["held_out"] if key.startswith(_ACCEPTED))
    for depth in sorted(int(name.removeprefix(_ACCEPTED)) for name in names):
        values = [100 * row["held_out"][f"{_ACCEPTED}{depth}"] for row in history]
        right.plot(steps, values, label=f"depth {depth + 1}", markersize=3, **style(depth))
    right.set_ylim(bottom=0)
    # Each half has a legend of its own: two below the picture would lie on each other.
    right.legend(loc="lower right", fontsize=SMALL, frameon=False)
    return figure
