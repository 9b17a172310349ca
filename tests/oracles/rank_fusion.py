"""Reciprocal rank fusion in exact fractions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def fused_scores(rankings: Sequence[Sequence[int]], weights: Sequence[int]) -> dict[int, Fraction]:
    """Returns the score of every id, with the constant 60.

    Args:
        rankings: Lists of ids without repeats, best first.
        weights: Of the lists.
    """
    everything = {number for ranking in rankings for number in ranking}
    return {
        number: sum(
            (
                Fraction(weight, 60 + 1 + list(ranking).index(number))
                for ranking, weight in zip(rankings, weights, strict=True)
                if number in ranking
            ),
            Fraction(0),
        )
        for number in everything
    }
