"""How good the retrieved documents are, given those that are relevant."""

from __future__ import annotations

from collections.abc import Collection, Sequence


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
