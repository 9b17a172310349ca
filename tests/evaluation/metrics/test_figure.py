"""A figure as plain data."""

from __future__ import annotations

from specrag.evaluation.metrics.figure import Figure


def test_a_figure_is_rounded_in_reports() -> None:
    assert Figure(1 / 3, 0.25, 0.5, 7).to_dict() == {
        "value": 0.333333, "low": 0.25, "high": 0.5, "num_items": 7,
    }  # fmt: skip
    assert Figure(None, None, None, 0).to_dict()["value"] is None
