"""Chooses results that are near to the query and not to each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from specrag.errors import ConfigError

Vectors = npt.NDArray[np.float32]


def mmr(
    query_vector: Vectors,
    vectors: Vectors,
    k: int,
    *,
    weight: float = 0.5,
    scores: Sequence[float] | None = None,
) -> list[int]:
    """Chooses candidates one by one by maximal marginal relevance.

    From Carbonell and Goldstein, "The use of MMR, diversity-based reranking for reordering
    documents and producing summaries" (1998), where the weight is called lambda: the next one has
    the largest ``weight * relevance - (1 - weight) * (largest similarity to a chosen one)``.
    Similarity is the inner product. Relevance is the similarity to the query, or what ``scores``
    say, stretched to the range of the candidates' similarities to the query; so scores of any
    kind can be weighed against it, and those similarities themselves stay as they are.

    Args:
        query_vector: Vector of the query, [dimension].
        vectors: Vectors of the candidates, of length 1, [num_candidates, dimension].
        k: Most candidates to choose, at least 1.
        weight: From 0, only variety counts, to 1, only relevance.
        scores: How relevant each candidate is, higher is better, [num_candidates].

    Returns:
        Places of the chosen candidates in the order of choice; of equals, the more relevant one
        goes first, then the one given first.

    Raises:
        ConfigError: k or the weight is out of range.
    """
    if k < 1 or not 0.0 <= weight <= 1.0:
        raise ConfigError(f"k must be at least 1 and weight from 0 to 1, got {k} and {weight}")
    similarities = vectors.astype(np.float64) @ query_vector.astype(np.float64)
    given = similarities if scores is None else np.asarray(scores, dtype=np.float64)
    assert given.shape == similarities.shape, "there is one score for each vector"
    order = np.argsort(-given, kind="stable")
    rows = vectors[order].astype(np.float64)
    relevance = similarities if scores is None else _stretched(given, similarities)
    relevance = relevance[order]
    chosen: list[int] = []
    closeness = np.zeros(len(rows))  # largest similarity to a chosen one; none is chosen yet
    free = np.ones(len(rows), dtype=np.bool_)
    for _ in range(min(k, len(rows))):
        value = np.where(free, weight * relevance - (1.0 - weight) * closeness, -np.inf)
        place = int(value.argmax())
        similarity = rows @ rows[place]
        closeness = np.maximum(closeness, similarity) if chosen else similarity
        free[place] = False
        chosen.append(place)
    return [int(order[place]) for place in chosen]


def _stretched(
    scores: npt.NDArray[np.float64], similarities: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Maps scores to the range of similarities, keeping their order and proportions."""
    if not len(scores):
        return similarities
    low, high = similarities.min(), similarities.max()
    span = scores.max() - scores.min()
    share = (scores - scores.min()) / span if span > 0 else np.ones(len(scores))
    return np.asarray(low + share * (high - low))
