"""Counters add up, and each ratio is what its name says."""

from __future__ import annotations

import copy
import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specrag.decoding.stats import DecodingStats, DecodingTimings, DraftCounters
from specrag.decoding.tree import DraftTree

# Depth of a chain, accepted tokens: what one pass did.
passes = st.lists(
    st.integers(0, 6).flatmap(lambda depth: st.tuples(st.just(depth), st.integers(0, depth))),
    max_size=12,
)


def recorded(rounds: list[tuple[int, int]]) -> DecodingStats:
    found = DecodingStats()
    for depth, accepted in rounds:
        found.record(DraftTree.chain(range(depth)), range(accepted), accepted + 1, "d")
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
    found.record(DraftTree.from_paths([[1, 2], [3, 4], [5]]), (0, 1), 3, "d")

    assert (found.num_drafts, found.num_draft_tokens) == (1, 5)
    assert found.num_accepted_tokens_per_pos == [1, 1]


NAMES = ("a", "b", "c")
origins_of = st.lists(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True).map(tuple), max_size=5
)
signed = st.lists(
    st.tuples(origins_of, st.integers(0, 5), st.sampled_from(["", "code", "prose"])), max_size=8
)


def counted(rounds: list[tuple[list[tuple[str, ...]], int, str]]) -> DecodingStats:
    found = DecodingStats()
    for origins, accepted, domain in rounds:
        size = len(origins)
        parents = tuple(range(-1, size - 1))
        tree = DraftTree(tuple(range(size)), parents, (), tuple(origins), domain=domain)
        path = range(min(accepted, size))
        found.record(tree, path, len(path) + 1, "whole")
    return found


@given(signed)
def test_every_node_is_credited_to_each_drafter_that_proposed_it(
    rounds: list[tuple[list[tuple[str, ...]], int, str]],
) -> None:
    found = counted(rounds)

    for name in NAMES:
        theirs = [(o, a) for o, a, _ in rounds if any(name in names for names in o)]
        drafted = sum(name in names for o, _ in theirs for names in o)
        accepted = sum(name in names for o, a in theirs for names in o[:a])
        expected = DraftCounters(len(theirs), len(theirs), drafted, accepted)
        assert found.drafters.get(name, DraftCounters()) == expected
    assert set(found.drafters) <= set(NAMES)
    for domain in ("code", "prose"):
        theirs = [(o, a) for o, a, d in rounds if d == domain]
        drafted, accepted = (
            sum(len(o[:most]) for o, most in [(o, a if cut else 9) for o, a in theirs])
            for cut in (False, True)
        )
        drafts = sum(len(o) > 0 for o, _ in theirs)
        expected = DraftCounters(len(theirs), drafts, drafted, accepted)
        assert found.domains.get(domain, DraftCounters()) == expected


def test_nodes_that_name_no_origin_are_those_of_the_drafter_that_was_asked() -> None:
    found = recorded([(3, 2), (0, 0), (4, 0)])

    assert found.drafters == {"d": DraftCounters(2, 2, 7, 2)}
    assert found.domains == {}


@given(signed, signed)
def test_counters_by_drafter_and_domain_add_up(
    first: list[tuple[list[tuple[str, ...]], int, str]],
    second: list[tuple[list[tuple[str, ...]], int, str]],
) -> None:
    total, other = counted(first), counted(second)
    before = copy.deepcopy(other)
    total.add(other)
    assert total == counted(first + second)
    assert other == before

    # What was added stays its own.
    total.add(total)
    assert other == before


def test_every_counter_adds_up() -> None:
    names = [f.name for f in dataclasses.fields(DecodingStats) if f.name.startswith("num_")]
    names.remove("num_accepted_tokens_per_pos")
    one, other = DecodingStats(), DecodingStats()
    for place, name in enumerate(names, start=1):
        setattr(one, name, place)
        setattr(other, name, 100 * place)
    one.add(other)

    assert [getattr(one, name) for name in names] == [101 * i for i in range(1, 1 + len(names))]


def test_statistics_become_plain_data_of_integers() -> None:
    found = dataclasses.asdict(recorded([(3, 2), (0, 0)]))

    assert json.loads(json.dumps(found)) == found
    assert found["drafters"]["d"]["num_draft_tokens"] == 3
    counts = [value for value in found.values() if not isinstance(value, list | dict)]
    assert all(type(value) is int for value in counts)


def test_decoding_is_all_but_prefill() -> None:
    assert DecodingTimings(prefill_ms=5.0, draft_ms=1.5, verify_ms=2.0).decode_ms == pytest.approx(
        3.5
    )
