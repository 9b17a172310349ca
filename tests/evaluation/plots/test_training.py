from __future__ import annotations

from typing import Any

import pytest

from specrag.evaluation.plots.training import training_curves
from tests.evaluation.plots.drawn import letters

pytest.importorskip("matplotlib")

NAMES = ("step", "loss (nats a token)", "drafted tokens accepted (%)")


def row(step: int, loss: float, *accepted: float) -> dict[str, Any]:
    shares = {f"accepted_{depth}": share for depth, share in enumerate(accepted)}
    return {
        "step": step,
        "train": {**shares, "loss": loss},
        "held_out": {**shares, "right_0": 0.9, "loss": loss + 1},
    }


def test_loss_and_acceptance_of_each_depth_are_drawn() -> None:
    history = [row(10, 3.0, 0.2, 0.1), row(20, 2.0, 0.4, 0.25)]
    figure = training_curves(history, "eagle3 for toy")
    left, right = figure.axes
    lines = [line.get_xydata().tolist() for line in left.lines]
    assert lines == [[[10, 3.0], [20, 2.0]], [[10, 4.0], [20, 3.0]]]
    shares = [line.get_xydata().tolist() for line in right.lines]
    assert shares == [[[10, 20.0], [20, 40.0]], [[10, 10.0], [20, 25.0]]]
    assert right.get_ylim()[0] == 0
    assert [line.get_label() for line in right.lines] == ["depth 1", "depth 2"]
    said = letters(figure)
    assert {*NAMES, "eagle3 for toy"} <= set(said)
    # Two legends below the picture would lie on each other.
    assert not figure.legends
    named = [[text.get_text() for text in half.get_legend().get_texts()] for half in figure.axes]
    assert named == [["training", "held out"], ["depth 1", "depth 2"]]
    kinds = {(line.get_color(), line.get_linestyle()) for line in left.lines}
    assert len(kinds) == 2  # told apart without the legend


def test_one_row_and_many_depths_can_be_drawn() -> None:
    figure = training_curves([row(1, 3.0, *[0.5] * 12)], "toy")
    found = [line.get_label() for line in figure.axes[1].lines]
    assert found == [f"depth {number + 1}" for number in range(12)]
    assert letters(figure)


def test_without_figures_there_is_no_picture() -> None:
    assert training_curves([], "toy") is None
