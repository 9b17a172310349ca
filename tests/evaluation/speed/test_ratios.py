"""Intervals of ratios of sums, held against resampling one draw at a time."""

from __future__ import annotations

import random

import numpy as np
import pytest

from specrag.evaluation.speed.ratios import interval


def ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.asarray(above / below)


def columns(count: int, seed: int = 0) -> list[list[float]]:
    chance = random.Random(seed)
    below = [chance.uniform(1, 9) for _ in range(count)]
    return [[value * chance.uniform(1, 3) for value in below], below]


def slow(of: list[list[float]], draws: int = 4000) -> tuple[float, float]:
    chance, (above, below) = random.Random(1), of
    places, found = range(len(above)), []
    for _ in range(draws):
        drawn = [chance.choice(places) for _ in places]
        found.append(sum(above[i] for i in drawn) / sum(below[i] for i in drawn))
    found.sort()
    return found[round(0.025 * draws)], found[round(0.975 * draws)]


@pytest.mark.parametrize("count", [2, 5, 40])
def test_intervals_are_those_of_drawing_prompts_one_by_one(count: int) -> None:
    of = columns(count)
    assert interval(of, ratio) == pytest.approx(slow(of), rel=0.02)


def test_columns_are_drawn_together() -> None:
    above, _ = columns(9)
    assert interval([[2 * value for value in above], above], ratio) == pytest.approx((2, 2))


def test_more_prompts_make_a_figure_surer_and_the_seed_decides() -> None:
    def width(count: int) -> float:
        low, high = interval(columns(count), ratio) or (0.0, 0.0)
        return high - low

    assert width(1000) < width(100) / 2 < width(10) / 4
    assert interval(columns(9), ratio, 3) == interval(columns(9), ratio, 3)
    assert interval(columns(9), ratio, 3) != interval(columns(9), ratio, 4)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    """Ratio 2 in the population; 95 % of intervals hold it, rather less for few prompts."""
    covered = 0
    for seed in range(200):
        low, high = interval(columns(60, seed), ratio, seed) or (0.0, 0.0)
        covered += low <= 2 <= high
    assert 178 <= covered <= 199


def test_one_prompt_says_nothing_about_others() -> None:
    assert interval([[4.0], [2.0]], ratio) is None
