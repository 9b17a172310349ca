from __future__ import annotations

import pytest

from specrag.decoding.budget import DraftBudget, PassCosts
from specrag.decoding.tree import DraftTree
from specrag.drafters.asking import Asking

FLAT = PassCosts((1, 64), (1.0, 1.0))
STEEP = PassCosts((1, 2, 64), (1.0, 2.0, 64.0))
MOST = DraftBudget(8, 8, 2)
NOTHING = DraftTree()


def taught(level: float, right: int, costs: PassCosts = FLAT, rounds: int = 40) -> Asking:
    """Of a drafter whose first ``right`` tokens come true, and no others."""
    asking = Asking(costs, level)
    for _ in range(rounds):
        asking.learn(DraftTree.chain(range(10, 18)), [*range(10, 10 + right), 99])
    return asking


@pytest.mark.parametrize("right", range(1, 8))
def test_it_is_asked_as_deep_as_it_is_right(right: int) -> None:
    assert taught(0.1, right).depth(NOTHING, MOST, 1) == right


def test_what_never_comes_true_is_not_asked_until_it_was_left_alone_for_a_while() -> None:
    asking = taught(0.2, 0)
    depths = []
    for _ in range(300):
        depths.append(asking.depth(NOTHING, MOST, 1))
        asking.learn(NOTHING, [99])
    assert depths[0] == 0
    assert depths[-1] > 0
    first = next(place for place, depth in enumerate(depths) if depth)
    assert first > 5


def test_where_a_free_draft_is_sure_nothing_else_is_asked() -> None:
    asking = taught(0.2, 3)
    sure = DraftTree.chain([1, 2, 3, 4], [0.97, 0.95, 0.9, 0.9])
    doubtful = DraftTree.chain([1, 2, 3, 4], [0.2, 0.1, 0.05, 0.01])
    assert asking.depth(sure, MOST, 1) == 0
    assert asking.depth(doubtful, MOST, 1) == 3


def test_a_level_that_costs_more_than_it_brings_is_not_asked() -> None:
    depths = [taught(level, 3).depth(NOTHING, MOST, 1) for level in (0.1, 0.5, 0.9, 3.0)]
    assert depths == sorted(depths, reverse=True)
    assert (depths[0], depths[-1]) == (3, 0)
    assert taught(0.1, 3, STEEP).depth(NOTHING, MOST, 1) == 0


def test_a_full_batch_asks_for_less() -> None:
    rising = PassCosts((1, 4, 64), (1.0, 1.1, 20.0))
    alone, many = (taught(0.05, 3, rising).depth(NOTHING, MOST, rows) for rows in (1, 16))
    assert alone == 3
    assert many < 3


@pytest.mark.parametrize("most", [DraftBudget(8, 2, 1), DraftBudget(2, 8, 1), DraftBudget(0, 0)])
def test_no_budget_is_overdrawn(most: DraftBudget) -> None:
    depth = taught(0.05, 6).depth(NOTHING, most, 1)
    assert depth == min(most.max_depth, most.num_speculative_tokens)
