"""Counters add up, and each ratio is what its name says."""

from __future__ import annotations

import copy
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specrag.decoding.stats import DecodingStats, DecodingTimings
from specrag.decoding.tree import DraftTree

# Depth of a chain, accepted tokens: what one pass did.
passes = st.lists(
    st.integers(0, 6).flatmap(lambda depth: st.tuples(st.just(depth), st.integers(0, depth))),
    max_size=12,
)


def recorded(rounds: list[tuple[int, int]]) -> DecodingStats:
    found = DecodingStats()
    for depth, accepted in rounds:
        found.record(DraftTree.chain(range(depth)), accepted, accepted + 1)
    return found


@given(passes)
def test_the_counters_are_the_sums_over_the_passes(rounds: list[tuple[int, int]]) -> None:
    found = recorded(rounds)

    assert found.num_passes == len(rounds)
    assert found.num_drafts == sum(depth > 0 for depth, _ in rounds)
    assert found.num_draft_tokens == sum(depth for depth, _ in rounds)
    assert found.num_accepted_tokens == sum(accepted for _, accepted in rounds)
    assert found.num_tokens == found.num_passes + found.num_accepted_tokens
    deepest = max([depth for depth, _ in rounds], default=0)
    expected = [sum(accepted > i for _, accepted in rounds) for i in range(deepest)]
    assert found.num_accepted_tokens_per_pos == expected
    assert sum(expected) == found.num_accepted_tokens


@given(passes, passes)
def test_the_sum_of_two_answers_is_the_answer_of_all_passes(
    first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    total, other = recorded(first), recorded(second)
    before = copy.deepcopy(other)
    total.add(other)

    assert total == recorded(first + second)
    assert other == before


@given(passes)
def test_the_ratios_follow_from_the_counters(rounds: list[tuple[int, int]]) -> None:
    found = recorded(rounds)
    drafted = sum(depth for depth, _ in rounds)
    accepted = sum(accepted for _, accepted in rounds)

    mean = 1 + accepted / len(rounds) if rounds else 1.0
    assert found.mean_acceptance_length == pytest.approx(mean)
    assert found.draft_acceptance_rate == pytest.approx(accepted / drafted if drafted else 0.0)


def test_plain_decoding_has_a_mean_acceptance_length_of_one() -> None:
    assert recorded([(0, 0)] * 5).mean_acceptance_length == 1.0


def test_a_tree_counts_all_its_nodes_but_only_its_depth_in_positions() -> None:
    found = DecodingStats()
    found.record(DraftTree.from_paths([[1, 2], [3, 4], [5]]), 2, 3)

    assert (found.num_drafts, found.num_draft_tokens) == (1, 5)
    assert found.num_accepted_tokens_per_pos == [1, 1]


def test_counters_are_integers() -> None:
    values = dataclasses.astuple(recorded([(3, 2), (0, 0)]))

    assert all(isinstance(value, int | list) for value in values)


def test_decoding_is_all_but_prefill() -> None:
    assert DecodingTimings(prefill_ms=5.0, draft_ms=1.5, verify_ms=2.0).decode_ms == pytest.approx(
        3.5
    )
