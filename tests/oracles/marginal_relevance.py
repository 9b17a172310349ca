"""Maximal marginal relevance by its definition: every candidate against every chosen one."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

Vector = Sequence[int]


def similarity(a: Vector, b: Vector) -> Fraction:
    """Returns the inner product."""
    return sum((Fraction(x) * y for x, y in zip(a, b, strict=True)), Fraction(0))


def chosen_by_definition(
    relevance: Sequence[Fraction], vectors: Sequence[Vector], k: int, weight: Fraction
) -> list[int]:
    """Returns the places of the chosen candidates, in exact arithmetic.

    Args:
        relevance: Of each candidate.
        vectors: Of the candidates.
        k: Most to choose.
        weight: Of relevance, against that of variety.
    """
    chosen: list[int] = []
    while len(chosen) < min(k, len(vectors)):
        left = [place for place in range(len(vectors)) if place not in chosen]

        def value(place: int) -> tuple[Fraction, Fraction, int]:
            near = max(
                (similarity(vectors[place], vectors[c]) for c in chosen), default=Fraction(0)
            )
            return weight * relevance[place] - (1 - weight) * near, relevance[place], -place

        chosen.append(max(left, key=value))
    return chosen
