"""The policies that ask no costs: the fixed one, and the one that follows the last ten drafts."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specrag.decoding.budget import DraftBudget, SpeculationConfig
from specrag.decoding.policy import FixedPolicy, Pause, RecentAcceptancePolicy, num_accepted
from specrag.decoding.stats import DecodingStats
from specrag.decoding.tree import DraftTree

WIDE = SpeculationConfig(num_speculative_tokens=20, branching=1, policy="recent_acceptance")


def policy_after(
    outcomes: Sequence[tuple[int, int]], config: SpeculationConfig = WIDE
) -> tuple[RecentAcceptancePolicy, DecodingStats]:
    """A policy whose row had drafts of these depths, of which so many tokens were accepted."""
    policy, stats = RecentAcceptancePolicy(config), DecodingStats()
    policy.join()
    for depth, accepted in outcomes:
        record(policy, stats, depth, accepted)
    return policy, stats


def record(policy: RecentAcceptancePolicy, stats: DecodingStats, depth: int, accepted: int) -> None:
    tree = DraftTree.chain(range(depth))
    policy.record(0, tree, tree, [*range(accepted), 99], stats)


def length(policy: RecentAcceptancePolicy) -> int:
    (budget,) = policy.budgets([0])
    assert budget.num_speculative_tokens == budget.max_depth
    return budget.max_depth


@pytest.mark.parametrize("rows", [[0], [2, 0, 1]])
def test_the_fixed_budget_never_changes_and_trees_go_whole(rows: list[int]) -> None:
    config = SpeculationConfig(7, 3, 2, policy="fixed")
    policy = FixedPolicy(config)
    trees = [DraftTree.from_paths([[1, 2], [3]])] * len(rows)
    for _ in range(30):
        assert policy.budgets(rows) == [DraftBudget(7, 3, 2)] * len(rows)
        assert policy.chosen(rows, trees) == trees
        policy.record(rows[0], trees[0], trees[0], [9], DecodingStats())


@pytest.mark.parametrize("known", [0, 1, 9])
def test_four_tokens_are_drafted_before_ten_drafts_are_known(known: int) -> None:
    for accepted in (0, 5):
        assert length(policy_after([(5, accepted)] * known)[0]) == 4


# Ten drafts of ten tokens: so many accepted in all, the length allowed then.
STEPS = [(100, 12), (86, 12), (85, 8), (71, 8), (70, 4), (51, 4), (50, 2), (41, 2)]


@pytest.mark.parametrize(("accepted", "expected"), STEPS)
def test_the_length_follows_the_mean_acceptance_of_ten_drafts(accepted: int, expected: int) -> None:
    outcomes = [(10, accepted // 10 + (number < accepted % 10)) for number in range(10)]

    assert length(policy_after(outcomes)[0]) == expected


def test_only_the_last_ten_drafts_count_and_rounds_without_one_do_not() -> None:
    good, bad, none = (4, 4), (4, 2), (0, 0)

    assert length(policy_after([bad] * 30 + [good] * 10)[0]) == 12
    assert length(policy_after([good] * 10 + [none] * 30)[0]) == 12
    assert length(policy_after([good] * 30 + [bad] * 10)[0]) == 2


fractions = st.sampled_from([2, 3, 4, 5, 6, 7, 8, 10, 12]).flatmap(
    lambda depth: st.tuples(st.just(depth), st.integers(0, depth))
)


@given(st.lists(fractions, min_size=10, max_size=10))
def test_thresholds_are_those_of_exact_arithmetic(outcomes: list[tuple[int, int]]) -> None:
    mean = sum((Fraction(accepted, depth) for depth, accepted in outcomes), Fraction(0)) / 10
    steps = {Fraction("0.85"): 12, Fraction("0.7"): 8, Fraction("0.5"): 4}
    expected = next((tokens for least, tokens in steps.items() if mean > least), 2)
    policy, stats = policy_after(outcomes)

    assert stats.num_switched_off == (mean < Fraction("0.4"))
    if not stats.num_switched_off:
        assert length(policy) == expected


@pytest.mark.parametrize(
    "outcomes",
    [
        # Means of exactly 0.5 and 0.7 that floating point puts a little above.
        [(3, 1), (3, 2), (10, 1), (10, 9), (3, 1), (3, 2), (10, 7), (10, 3), (2, 1), (2, 1)],
        [(10, 7)] * 10,
        [(5, 3), (5, 4)] * 5,
        [(10, 1), (10, 2), (10, 4), (10, 3), (2, 2), (2, 2), (2, 2), (2, 2), (2, 2), (2, 2)],
    ],
)
def test_a_mean_on_a_threshold_is_not_over_it(outcomes: list[tuple[int, int]]) -> None:
    mean = sum((Fraction(accepted, depth) for depth, accepted in outcomes), Fraction(0)) / 10

    assert length(policy_after(outcomes)[0]) == {Fraction("0.5"): 2, Fraction("0.7"): 4}[mean]


@pytest.mark.parametrize(("nodes", "depth"), [(5, 3), (3, 9), (30, 30), (0, 0)])
def test_never_more_than_configured(nodes: int, depth: int) -> None:
    config = SpeculationConfig(nodes, depth, 2, policy="recent_acceptance")
    policy, _ = policy_after([(10, 10)] * 10, config)

    assert policy.budgets([0]) == [DraftBudget(min(nodes, 12), min(depth, 12), 2)]


def test_bad_drafts_pause_speculation_for_longer_and_longer_until_they_are_good() -> None:
    policy, stats = policy_after([(5, 1)] * 9)
    pauses = []
    for round_ in range(5):
        for _ in range(1 if round_ == 0 else 10):  # ten drafts judge the probe
            assert length(policy) == 4
            record(policy, stats, 5, 1)
        pauses.append(0)
        while length(policy) == 0:
            record(policy, stats, 0, 0)
            pauses[-1] += 1
    assert pauses == [16, 32, 64, 128, 128]
    assert (stats.num_switched_off, stats.num_probes) == (5, 5)
    assert stats.num_off_passes == sum(pauses)

    for _ in range(10):
        record(policy, stats, 5, 5)
    while length(policy):
        record(policy, stats, 5, 0)
    pause = 0
    while length(policy) == 0:
        record(policy, stats, 0, 0)
        pause += 1
    assert pause == 16


def test_a_least_acceptance_of_zero_never_pauses() -> None:
    config = SpeculationConfig(20, branching=1, policy="recent_acceptance", min_acceptance=0.0)
    policy, stats = policy_after([(4, 0)] * 100, config)

    assert length(policy) == 2
    assert stats.num_switched_off == stats.num_off_passes == 0


def test_rows_do_not_learn_from_each_other() -> None:
    policy, stats = RecentAcceptancePolicy(WIDE), DecodingStats()
    for _ in range(3):
        policy.join()
    good, bad = DraftTree.chain([1, 2]), DraftTree.chain([3, 4])
    for _ in range(10):
        policy.record(0, good, good, [1, 2, 9], stats)
        policy.record(2, bad, bad, [9], stats)

    assert [budget.max_depth for budget in policy.budgets([2, 1, 0])] == [0, 4, 12]


def test_a_pause_counts_down_and_doubles() -> None:
    pause, stats = Pause(), DecodingStats()
    lengths = [length_of(pause, stats) for _ in range(2)]
    pause.forget()
    lengths.append(length_of(pause, stats))

    assert lengths == [16, 32, 16]
    assert (stats.num_switched_off, stats.num_off_passes, stats.num_probes) == (3, 64, 3)


def length_of(pause: Pause, stats: DecodingStats) -> int:
    """Starts a pause and counts its rounds."""
    rounds = 0
    pause.start(stats)
    while pause.is_running:
        pause.count(stats)
        rounds += 1
    return rounds


@pytest.mark.parametrize(
    ("emitted", "expected"),
    [([], 0), ([1], 1), ([1, 2], 2), ([1, 2, 9], 2), ([3, 4, 5], 2), ([4], 0), ([1, 4], 1)],
)
def test_accepted_tokens_stand_in_the_tree_from_its_root_on(
    emitted: list[int], expected: int
) -> None:
    assert num_accepted(DraftTree.from_paths([[1, 2], [3, 4], [3, 1]]), emitted) == expected
