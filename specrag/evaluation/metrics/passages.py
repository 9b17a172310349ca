"""How good the retrieved documents are, given those that are relevant.

Passages count for their document, at the rank where it comes first.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence


def recall(retrieved: Sequence[str], relevant: Collection[str]) -> float | None:
    """Returns the share of the relevant documents that were retrieved.

    Args:
        retrieved: Ids of documents; one may stand there for several of its passages.
        relevant: Ids of those that hold the answer.

    Returns:
        None when none is known to be relevant.
    """
    wanted = set(relevant)
    return len(wanted & set(retrieved)) / len(wanted) if wanted else None


def reciprocal_rank(retrieved: Sequence[str], relevant: Collection[str]) -> float | None:
    """Returns one over the rank of the first relevant document, 0.0 when there is none.

    Args:
        retrieved: Ids of documents, best first.
        relevant: Ids of those that hold the answer.

    Returns:
        None when none is known to be relevant.
    """
    if not relevant:
        return None
    ranks = enumerate(dict.fromkeys(retrieved), 1)
    return next((1 / rank for rank, document in ranks if document in relevant), 0.0)


def ndcg(
    retrieved: Sequence[str], relevance: Mapping[str, float], k: int | None = None
) -> float | None:
    """Returns the normalised discounted cumulative gain (Järvelin & Kekäläinen, 2002).

    With the gain linear in the grade, as TREC's evaluation counts it.

    Args:
        retrieved: Ids of documents, best first.
        relevance: Grades of the documents that were judged; others count as 0.
        k: Documents that count; None for all that were retrieved or judged.

    Returns:
        None when none is known to be relevant.
    """
    ideal = _gain(sorted((grade for grade in relevance.values() if grade > 0), reverse=True)[:k])
    found = [max(relevance.get(document, 0.0), 0.0) for document in dict.fromkeys(retrieved)]
    return _gain(found[:k]) / ideal if ideal else None


def _gain(grades: Sequence[float]) -> float:
    return sum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))
