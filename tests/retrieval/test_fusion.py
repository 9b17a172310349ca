from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.errors import ConfigError
from specrag.retrieval.fusion import RRF_CONSTANT, reciprocal_rank_fusion
from tests.oracles.rank_fusion import fused_scores

_RANKING = st.lists(st.integers(0, 9), unique=True, max_size=8)
_RANKINGS = st.lists(_RANKING, max_size=4)


def ids(rankings: list[list[int]]) -> list[int]:
    return [number for _, number in reciprocal_rank_fusion(rankings)]


def test_ids_in_both_lists_come_first() -> None:
    hits = reciprocal_rank_fusion([[1, 2, 3], [3, 4]])
    assert [number for _, number in hits] == [3, 1, 2, 4]
    assert hits[0][0] == pytest.approx(1 / 63 + 1 / 61)
    assert hits[1][0] == pytest.approx(1 / 61)


def test_equal_scores_come_by_best_rank_then_id() -> None:
    assert ids([[9, 1], [1, 9]]) == [1, 9]
    assert ids([[5], [4], [6]]) == [4, 5, 6]
    # Two parts that add up to one: 1/2 = 1/3 + 1/6 with the constant 0.
    tie = reciprocal_rank_fusion([[0, 7, 6], [1, 2, 3, 4, 5, 6]], constant=0)
    assert [number for score, number in tie if score == 0.5] == [2, 7, 6]


def test_weights_count() -> None:
    heavy = reciprocal_rank_fusion([[1, 2], [2, 1]], weights=[1, 2])
    assert [number for _, number in heavy] == [2, 1]
    assert reciprocal_rank_fusion([[1, 2], [3]], weights=[1, 0]) == reciprocal_rank_fusion([[1, 2]])


def test_a_repeated_id_counts_once() -> None:
    assert reciprocal_rank_fusion([[1, 2, 1, 3]]) == reciprocal_rank_fusion([[1, 2, 3]])


def test_nothing_fuses_to_nothing() -> None:
    assert reciprocal_rank_fusion([]) == []
    assert reciprocal_rank_fusion([[], []]) == []


@given(st.data(), _RANKINGS)
@settings(deadline=None)
def test_scores_are_those_of_the_definition(data: st.DataObject, rankings: list[list[int]]) -> None:
    size = len(rankings)
    weights = data.draw(st.lists(st.integers(1, 5), min_size=size, max_size=size))
    hits = reciprocal_rank_fusion(rankings, weights=weights)
    expected = fused_scores(rankings, weights)
    assert {number: score for score, number in hits} == pytest.approx(
        {number: float(score) for number, score in expected.items()}, rel=1e-14
    )
    best = {n: min(one.index(n) for one in rankings if n in one) for n in expected}
    order = sorted(hits, key=lambda hit: (-hit[0], best[hit[1]], hit[1]))
    assert hits == order


@given(st.data(), _RANKINGS)
@settings(deadline=None)
def test_the_order_of_the_lists_changes_nothing(
    data: st.DataObject, rankings: list[list[int]]
) -> None:
    shuffled = data.draw(st.permutations(rankings))
    assert reciprocal_rank_fusion(shuffled) == reciprocal_rank_fusion(rankings)


@given(_RANKING)
@settings(deadline=None)
def test_one_list_stays_as_it_is(ranking: list[int]) -> None:
    assert ids([ranking]) == ranking
    assert ids([ranking, ranking]) == ranking


@given(_RANKINGS.filter(any), st.data())
@settings(deadline=None)
def test_a_better_rank_never_lowers_a_score(rankings: list[list[int]], data: st.DataObject) -> None:
    place = data.draw(st.sampled_from([i for i, ranking in enumerate(rankings) if ranking]))
    number = data.draw(st.sampled_from(rankings[place]))
    before = {key: score for score, key in reciprocal_rank_fusion(rankings)}
    raised = [list(ranking) for ranking in rankings]
    rank = raised[place].index(number)
    raised[place].insert(data.draw(st.integers(0, rank)), raised[place].pop(rank))
    after = {key: score for score, key in reciprocal_rank_fusion(raised)}
    assert after[number] >= before[number]
    assert all(after[key] <= before[key] for key in before if key != number)


@pytest.mark.parametrize(
    ("weights", "constant", "message"),
    [
        ([1.0], RRF_CONSTANT, "2 lists need as many weights, got 1"),
        ([1.0, -1.0], RRF_CONSTANT, "must be at least 0 and finite"),
        ([1.0, float("nan")], RRF_CONSTANT, "must be at least 0 and finite"),
        ([1.0, 1.0], -1, "must be at least 0 and finite"),
    ],
)
def test_unusable_weights_are_refused(weights: list[float], constant: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        reciprocal_rank_fusion([[1], [2]], weights=weights, constant=constant)
