"""Nearest vectors by comparing and sorting everything, one number at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence


def nearest(
    query: Sequence[float],
    vectors: Mapping[int, Sequence[float]],
    k: int,
    allowed: Iterable[int] | None = None,
    excluded: Iterable[int] | None = None,
) -> list[tuple[float, int]]:
    """Returns scores and ids, best first, equal scores in the order of ids."""
    may_be = set(vectors if allowed is None else allowed) - set(excluded or ())
    scored = []
    for number, vector in vectors.items():
        if number in may_be:
            score = math.fsum(a * b for a, b in zip(query, vector, strict=True))
            scored.append((-score, number))
    return [(-negated, number) for negated, number in sorted(scored)[:k]]
