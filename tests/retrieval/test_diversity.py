from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.errors import ConfigError
from specrag.retrieval.diversity import mmr
from tests.oracles.marginal_relevance import chosen_by_definition, similarity

QUERY = np.array([1.0, 0.0], dtype=np.float32)
NEAR, TWIN, APART, OPPOSITE = (
    np.array(vector, dtype=np.float32) for vector in ([0.8, 0.6], [0.8, 0.6], [0.6, -0.8], [-1, 0])
)
VECTORS = np.array([NEAR, TWIN, APART, OPPOSITE])


@pytest.mark.parametrize(
    ("weight", "expected"), [(1.0, [0, 1, 2, 3]), (0.5, [0, 2, 1, 3]), (0.0, [0, 3, 2, 1])]
)
def test_less_weight_of_relevance_means_more_variety(weight: float, expected: list[int]) -> None:
    assert mmr(QUERY, VECTORS, 4, weight=weight) == expected
    assert mmr(QUERY, VECTORS, 2, weight=weight) == expected[:2]
    assert mmr(QUERY, VECTORS, 9, weight=weight) == expected


def test_scores_stand_in_for_similarity_on_any_scale() -> None:
    similarities = VECTORS @ QUERY
    for scale, shift in [(1.0, 0.0), (0.001, 5.0), (1000.0, -3.0)]:
        scores = (similarities * scale + shift).tolist()
        assert mmr(QUERY, VECTORS, 4, weight=0.5, scores=scores) == [0, 2, 1, 3]
    assert mmr(QUERY, VECTORS, 4, weight=1.0, scores=[1, 2, 3, 4]) == [3, 2, 1, 0]
    assert mmr(QUERY, VECTORS, 4, weight=1.0, scores=[5, 5, 5, 5]) == [0, 1, 2, 3]
    assert mmr(QUERY, VECTORS, 1, weight=0.5, scores=[1, 2, 3, 4]) == [3]


def test_there_may_be_no_candidates() -> None:
    nothing = np.empty((0, 2), dtype=np.float32)
    assert mmr(QUERY, nothing, 3) == []
    assert mmr(QUERY, nothing, 3, scores=[]) == []
    assert mmr(QUERY, VECTORS[:1], 3, scores=[7.0]) == [0]


_VECTOR = st.tuples(*[st.integers(-3, 3)] * 3)


@given(
    _VECTOR,
    st.lists(_VECTOR, max_size=7),
    st.integers(1, 8),
    st.sampled_from([Fraction(0), Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), Fraction(1)]),
)
@settings(deadline=None, max_examples=200)
def test_the_choice_is_that_of_the_definition(
    query: tuple[int, ...], vectors: list[tuple[int, ...]], k: int, weight: Fraction
) -> None:
    # Small whole numbers and quarters, so that nothing is rounded and ties are ties.
    relevance = [similarity(vector, query) for vector in vectors]
    expected = chosen_by_definition(relevance, vectors, k, weight)
    rows = np.array(vectors, dtype=np.float32).reshape(-1, 3)
    assert mmr(np.array(query, dtype=np.float32), rows, k, weight=float(weight)) == expected


@given(st.lists(_VECTOR, min_size=1, max_size=7), st.data())
@settings(deadline=None)
def test_every_candidate_is_chosen_once_and_the_best_first(
    vectors: list[tuple[int, ...]], data: st.DataObject
) -> None:
    rows = np.array(vectors, dtype=np.float32)
    size = len(vectors)
    scores = data.draw(st.lists(st.integers(-5, 5), min_size=size, max_size=size))
    weight = data.draw(st.floats(0, 1))
    chosen = mmr(rows[0], rows, size, weight=weight, scores=scores)
    assert sorted(chosen) == list(range(size))
    if weight > 0.01:
        low, high = (rows @ rows[0]).min(), (rows @ rows[0]).max()
        assert low == high or scores[chosen[0]] == max(scores)


@pytest.mark.parametrize(("k", "weight"), [(0, 0.5), (1, -0.1), (1, 1.1), (1, float("nan"))])
def test_unusable_settings_are_refused(k: int, weight: float) -> None:
    with pytest.raises(ConfigError, match="k must be at least 1 and weight from 0 to 1, got"):
        mmr(QUERY, VECTORS, k, weight=weight)
