"""Figures with intervals, and the rows over all prompts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from specrag.evaluation.plots.marks import (
    Point,
    arm_styles,
    counted,
    measured,
    overall,
    reach,
    share,
    spread,
)
from tests.evaluation.plots.drawn import letters


def test_shares_are_shown_in_per_cent() -> None:
    assert share({"value": 0.25, "low": 0.125, "high": 0.5}) == Point(25.0, 12.5, 50.0)
    assert share({"value": 0.25, "low": None, "high": None}) == Point(25.0)
    assert share({"value": None}) is None
    assert share(None) is None


def test_a_figure_takes_the_interval_of_its_own_name() -> None:
    row = {"speedup": 1.5, "speedup_low": 1.2, "speedup_high": 2.0, "tokens_per_second_low": 9.0}
    assert measured(row, "speedup") == Point(1.5, 1.2, 2.0)
    assert measured(row, "tokens_per_second") is None


def test_error_bars_reach_from_the_value_to_the_ends() -> None:
    down, up = reach([Point(1.5, 1.25, 2.0), Point(1.0), Point(1.0, 1.1, 1.2)])
    assert down[0] == 0.25
    assert up[0] == 0.5
    assert math.isnan(down[1])
    assert math.isnan(up[1])
    assert down[2] == 0.0  # a negative length cannot be drawn


def test_rows_over_all_prompts() -> None:
    rows = [{"drafter": name, "category": place} for place in ("qa", "all") for name in "ab"]
    assert overall({"results": rows}) == rows[2:]
    assert overall({"results": rows[:2]}) == rows[:2]
    assert overall({"drafters": rows[2:]}) == rows[2:]
    # One of several categories does not stand for all of them.
    mixed: list[dict[str, Any]] = [rows[0], {"drafter": "a", "category": "maths"}]
    assert overall({"results": mixed}) == []


def test_plain_decoding_costs_the_others_no_colour() -> None:
    with_plain, alone = arm_styles(["none", "suffix", "suffix", "x"]), arm_styles(["suffix", "x"])
    assert with_plain == alone
    assert with_plain["none"]["color"] != with_plain["suffix"]["color"]


def test_the_largest_count_is_told() -> None:
    assert counted("Speed", [3, None, 12], "prompts") == "Speed (12 prompts)"
    assert counted("Speed", [None], "prompts") == "Speed"


def test_far_slow_ends_get_a_logarithmic_scale() -> None:
    pytest.importorskip("matplotlib")
    near, far = {"p50": 1.0, "p90": 2.0, "p99": 3.0}, {"p50": 1.0, "p90": 2.0, "p99": 99.0}
    figure = spread("Times", "ms", [("a", near), ("b", {"p50": 1.0, "p90": None, "p99": 2.0})])
    assert "ms" in letters(figure)
    assert "b" not in letters(figure)
    assert "ms, logarithmic scale" in letters(spread("Times", "ms", [("a", near), ("b", far)]))
    assert spread("Times", "ms", [("a", {})]) is None
