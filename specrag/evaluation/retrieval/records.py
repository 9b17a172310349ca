"""One question put to one retriever: the documents found, how long it took, how good they are."""

from __future__ import annotations

import time
from typing import Any

from specrag.evaluation.datasets.item import EvalItem
from specrag.evaluation.metrics.passages import (
    ndcg,
    precision,
    recall,
    reciprocal_rank,
    success,
)
from specrag.evaluation.retrieval.judgements import relevance
from specrag.evaluation.retrieval.settings import CUT, RetrievalSettings
from specrag.retrieval.retriever import Retriever

Record = dict[str, Any]
"""A line of ``items.jsonl``: ``mode`` (the retriever), ``id``, ``category``, ``documents`` (found,
best first), ``scores`` and ``latency_ms``."""

_MOST_PASSAGES = 16  # asked for, as a multiple of the documents that are looked for


def record_of(
    name: str, retriever: Retriever, item: EvalItem, settings: RetrievalSettings, several: bool
) -> Record:
    """Asks one question and judges what comes.

    Args:
        name: Of the retriever, in the report.
        retriever: Is asked.
        item: The question.
        settings: Of the run.
        several: Whether questions of the set have more than one relevant document.
    """
    found, spent = ranked(retriever, item.question, settings.depth)
    return {
        "mode": name,
        "id": item.id,
        "category": item.category,
        "documents": found,
        "scores": scores_of(found, item, settings, several),
        "latency_ms": {"lookup_ms": round(1e3 * spent, 4)},
    }


def ranked(retriever: Retriever, question: str, depth: int) -> tuple[list[str], float]:
    """Returns documents in the order of their best passages, and the seconds of one lookup.

    A lookup for as many passages as documents are wanted brings fewer documents, where one has
    several passages; then more is asked for, and what that brings stands behind.

    Args:
        retriever: Is asked.
        question: The query.
        depth: Most documents, and the passages of the lookup that is timed.
    """
    start = time.perf_counter()
    passages = retriever.retrieve(question, depth)
    spent = time.perf_counter() - start
    documents = dict.fromkeys(each.passage.document for each in passages)
    asked = depth
    while len(documents) < depth and len(passages) == asked < _MOST_PASSAGES * depth:
        asked *= 2
        passages = retriever.retrieve(question, asked)
        documents.update(dict.fromkeys(each.passage.document for each in passages))
    return list(documents)[:depth], spent


def scores_of(
    found: list[str], item: EvalItem, settings: RetrievalSettings, several: bool
) -> dict[str, float | None]:
    """Returns the measures of one ranking, by name.

    Args:
        found: Ids of documents, best first.
        item: The question.
        settings: Of the run.
        several: Whether to tell precision and success, too.
    """
    grades = relevance(item)
    scores = {
        f"ndcg@{CUT}": ndcg(found, grades, CUT, settings.gain),
        f"mrr@{CUT}": reciprocal_rank(found, grades, CUT),
        **{f"recall@{k}": recall(found, grades, k) for k in settings.k},
    }
    if several:
        scores |= {f"precision@{k}": precision(found, grades, k) for k in settings.k}
        scores |= {f"success@{k}": success(found, grades, k) for k in settings.k}
    return scores
