"""How good the retrieved documents are, given those that are relevant.

Passages count for their document, at the rank where it comes first. All measures are those of
TREC's evaluation, ``trec_eval``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from specrag.errors import ConfigError, suggest

Gain = Literal["linear", "exponential"]
"""What a grade is worth: itself, or two to its power less one (Burges et al., 2005)."""
GAINS: tuple[Gain, ...] = ("linear", "exponential")


def chosen_gain(name: str) -> Gain:
    """Returns the gain of a name.

    Args:
        name: As typed.

    Raises:
        ConfigError: There is none of that name.
    """
    for gain in GAINS:
        if gain == name:
            return gain
    raise ConfigError(f"unknown gain {name!r}; {suggest(name, GAINS)}")


def recall(
    retrieved: Sequence[str], relevant: Collection[str], k: int | None = None
) -> float | None:
    """Returns the share of the relevant documents that were retrieved.

    Args:
        retrieved: Ids of documents, best first; one may stand there for several of its passages.
        relevant: Ids of those that hold the answer.
        k: Documents that count; None for all.

    Returns:
        None when none is known to be relevant.
    """
    wanted = set(relevant)
    return len(wanted.intersection(_once(retrieved)[:k])) / len(wanted) if wanted else None


def precision(retrieved: Sequence[str], relevant: Collection[str], k: int) -> float | None:
    """Returns the share of ``k`` places that a relevant document stands on.

    Args:
        retrieved: Ids of documents, best first; a place that is left empty counts as wrong.
        relevant: Ids of those that hold the answer.
        k: Documents that count.

    Returns:
        None when none is known to be relevant.
    """
    wanted = set(relevant)
    return len(wanted.intersection(_once(retrieved)[:k])) / k if wanted else None


def success(retrieved: Sequence[str], relevant: Collection[str], k: int) -> float | None:
    """Returns whether a relevant document was retrieved, 1.0 or 0.0.

    Args:
        retrieved: Ids of documents, best first.
        relevant: Ids of those that hold the answer.
        k: Documents that count.

    Returns:
        None when none is known to be relevant.
    """
    wanted = set(relevant)
    return float(not wanted.isdisjoint(_once(retrieved)[:k])) if wanted else None


def reciprocal_rank(
    retrieved: Sequence[str], relevant: Collection[str], k: int | None = None
) -> float | None:
    """Returns one over the rank of the first relevant document, 0.0 when there is none.

    Args:
        retrieved: Ids of documents, best first.
        relevant: Ids of those that hold the answer.
        k: Documents that count; None for all.

    Returns:
        None when none is known to be relevant.
    """
    if not relevant:
        return None
    ranks = enumerate(_once(retrieved)[:k], 1)
    return next((1 / rank for rank, document in ranks if document in relevant), 0.0)


def ndcg(
    retrieved: Sequence[str],
    relevance: Mapping[str, float],
    k: int | None = None,
    gain: Gain = "linear",
) -> float | None:
    """Returns the normalised discounted cumulative gain (Järvelin & Kekäläinen, 2002).

    With the gain linear in the grade, as TREC's evaluation counts it, unless told otherwise.

    Args:
        retrieved: Ids of documents, best first.
        relevance: Grades of the documents that were judged; others count as 0.
        k: Documents that count; None for all that were retrieved or judged.
        gain: What a grade is worth.

    Returns:
        None when none is known to be relevant.
    """
    worth = {name: _worth(grade, gain) for name, grade in relevance.items() if grade > 0}
    ideal = _discounted(sorted(worth.values(), reverse=True)[:k])
    found = [worth.get(document, 0.0) for document in _once(retrieved)[:k]]
    return _discounted(found) / ideal if ideal else None


def _once(retrieved: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(retrieved))


def _worth(grade: float, gain: Gain) -> float:
    return grade if gain == "linear" else 2.0**grade - 1


def _discounted(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))
