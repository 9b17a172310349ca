"""Measures of a ranking by their definitions in trec_eval: rank by rank, with plain fractions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction


def first_places(passages: Sequence[str]) -> list[str]:
    """Returns documents where they come first."""
    found: list[str] = []
    for document in passages:
        if document not in found:
            found.append(document)
    return found


def recall_at(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> Fraction:
    """Returns relevant documents up to rank k, of all that are relevant."""
    relevant = [name for name, grade in grades.items() if grade > 0]
    return Fraction(sum(1 for name in relevant if name in ranking[:k]), len(relevant))


def precision_at(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> Fraction:
    """Returns relevant documents up to rank k, of k, however few were found."""
    hits = 0
    for rank in range(k):
        if rank < len(ranking) and grades.get(ranking[rank], 0) > 0:
            hits += 1
    return Fraction(hits, k)


def success_at(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> int:
    """Returns whether there is a relevant document up to rank k."""
    return 1 if precision_at(ranking, grades, k) > 0 else 0


def reciprocal_rank_at(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> Fraction:
    """Returns one over the first relevant rank up to k, else 0."""
    for rank in range(1, k + 1):
        if success_at(ranking, grades, rank):
            return Fraction(1, rank)
    return Fraction(0)


def ndcg_at(
    ranking: Sequence[str], grades: Mapping[str, int], k: int, exponential: bool = False
) -> float:
    """Returns the discounted gain up to rank k over that of the best ranking of what is judged."""

    def gain(name: str) -> int:
        grade = max(0, grades.get(name, 0))
        return 2**grade - 1 if exponential else grade

    def discounted(names: Sequence[str]) -> float:
        total = 0.0
        for rank in range(1, min(k, len(names)) + 1):
            total += gain(names[rank - 1]) * math.log(2) / math.log(rank + 1)
        return total

    best = sorted(grades, key=gain, reverse=True)
    return discounted(ranking) / discounted(best)
