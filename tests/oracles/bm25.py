"""BM25 by its definition: one passage, one term at a time, in exact sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum, log


def bm25(passages: Mapping[int, Sequence[str]], query: Sequence[str]) -> dict[int, float]:
    """Returns the scores above 0.

    Args:
        passages: The terms of each passage, in any order, repeated as they are.
        query: The terms of the query, repeated as they are.
    """
    lengths = {number: len(terms) for number, terms in passages.items()}
    mean = sum(lengths.values()) / max(1, len(lengths))
    scores = {}
    for number, terms in passages.items():
        parts = []
        for term in query:
            count = list(terms).count(term)
            holding = sum(1 for others in passages.values() if term in others)
            rarity = log(1 + (len(passages) - holding + 0.5) / (holding + 0.5))
            if count:
                damping = 1.2 * (1 - 0.75 + 0.75 * lengths[number] / mean)
                parts.append(rarity * count / (count + damping))
        if parts:
            scores[number] = fsum(parts)
    return scores
