"""Measures of retrieval, held against scikit-learn and by their definitions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import label_ranking_average_precision_score, ndcg_score

from specrag.errors import ConfigError
from specrag.evaluation.metrics.passages import (
    chosen_gain,
    ndcg,
    precision,
    recall,
    reciprocal_rank,
    success,
)

IDS = list("abcdefgh")
LAWS = settings(deadline=None, max_examples=100)
RANKED = st.permutations(IDS)
GRADES = st.lists(st.integers(0, 3), min_size=len(IDS), max_size=len(IDS))


@LAWS
@given(RANKED, GRADES, st.none() | st.integers(1, 10))
def test_ndcg_is_that_of_a_library(ranked: list[str], grades: list[int], k: int | None) -> None:
    relevance: dict[str, float] = dict(zip(IDS, grades, strict=True))
    scores = [[-ranked.index(name) for name in IDS]]
    found = ndcg(ranked, relevance, k)
    if any(grades):
        assert found == pytest.approx(ndcg_score([grades], scores, k=k))
    else:
        assert found is None


@LAWS
@given(RANKED, st.sampled_from(IDS))
def test_reciprocal_rank_is_that_of_a_library(ranked: list[str], wanted: str) -> None:
    # With one relevant document the precision at its rank is one over that rank.
    truth = [[int(name == wanted) for name in IDS]]
    scores = [[-ranked.index(name) for name in IDS]]
    expected = label_ranking_average_precision_score(truth, scores)
    assert reciprocal_rank(ranked, [wanted]) == pytest.approx(expected)


@LAWS
@given(st.lists(st.sampled_from(IDS), max_size=12), st.sets(st.sampled_from(IDS)))
def test_passages_count_for_their_document(retrieved: list[str], relevant: set[str]) -> None:
    once = sorted(set(retrieved), key=retrieved.index)
    relevance = dict.fromkeys(relevant, 1.0)
    assert recall(retrieved, relevant) == recall(once, relevant)
    assert reciprocal_rank(retrieved, relevant) == reciprocal_rank(once, relevant)
    assert ndcg(retrieved, relevance) == ndcg(once, relevance)
    if relevant:
        assert recall(retrieved, relevant) == len(relevant & set(retrieved)) / len(relevant)
        first = next((rank for rank, name in enumerate(once, 1) if name in relevant), None)
        assert reciprocal_rank(retrieved, relevant) == (1 / first if first else 0)


def test_there_is_nothing_to_measure_without_relevant_documents() -> None:
    assert recall(["a"], []) is None
    assert reciprocal_rank(["a"], []) is None
    assert precision(["a"], [], 1) is None
    assert success(["a"], [], 1) is None
    assert ndcg(["a"], {}) is None
    assert ndcg(["a"], {"a": 0.0, "b": -1.0}) is None


def test_what_is_missing_costs() -> None:
    assert ndcg(["a"], {"a": 1.0, "b": 1.0}) == pytest.approx(1 / (1 + 1 / 1.584962500721156))
    assert ndcg(["a"], {"a": 1.0, "b": 1.0}, k=1) == 1.0
    assert ndcg([], {"a": 1.0}) == 0.0
    assert ndcg(["x"], {"x": -1.0, "a": 1.0}) == 0.0  # a grade below zero is no loss
    assert recall(["a", "a"], ["a", "b"]) == 0.5


def test_only_the_first_k_documents_count() -> None:
    found = ["a", "a", "b", "c"]
    assert recall(found, ["b", "c"], 2) == 0.5
    assert precision(found, ["b", "c"], 2) == 0.5
    assert precision(found, ["b", "c"], 10) == 0.2  # places that are left empty count
    assert [success(found, ["b"], k) for k in (1, 2)] == [0.0, 1.0]
    assert [reciprocal_rank(found, ["c"], k) for k in (2, 3, None)] == [0.0, 1 / 3, 1 / 3]


def test_the_exponential_gain_tells_the_best_more_from_the_good() -> None:
    grades = {"a": 1.0, "b": 3.0}
    discount = 1 / 1.584962500721156
    linear, steep = (
        ndcg(["a", "b"], grades, gain=chosen_gain(n)) for n in ("linear", "exponential")
    )
    assert linear == pytest.approx((1 + 3 * discount) / (3 + discount))
    assert steep == pytest.approx((1 + 7 * discount) / (7 + discount))
    with pytest.raises(ConfigError, match="unknown gain 'steep'"):
        chosen_gain("steep")
