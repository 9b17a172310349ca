from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.drafters.trees.best_tree import best_tree, expected_tokens
from specrag.drafters.trees.tree_shape import TreeShape
from specrag.errors import ConfigError

shares = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.8, 1.0])
tables = st.lists(st.lists(shares, min_size=1, max_size=2), min_size=1, max_size=3)


def best_by_trial(accuracies: list[list[float]], num_nodes: int) -> float:
    """The most that any tree of this size can expect."""
    nodes = [
        path
        for depth in range(1, len(accuracies) + 1)
        for path in product(*(range(len(ranks)) for ranks in accuracies[:depth]))
    ]
    best = 0.0
    for count in range(min(num_nodes, len(nodes)) + 1):
        for chosen in combinations(nodes, count):
            if all(path[:-1] in chosen for path in chosen if len(path) > 1):
                best = max(best, expected_tokens(accuracies, TreeShape(chosen)))
    return best


@given(accuracies=tables, num_nodes=st.integers(0, 4))
@settings(deadline=None, max_examples=60)
def test_no_tree_of_the_size_expects_more(accuracies: list[list[float]], num_nodes: int) -> None:
    shape = best_tree(accuracies, num_nodes)

    assert len(shape) <= num_nodes
    found = expected_tokens(accuracies, shape)
    assert found == pytest.approx(best_by_trial(accuracies, num_nodes))


@given(accuracies=tables, num_nodes=st.integers(1, 8))
@settings(deadline=None, max_examples=60)
def test_a_larger_tree_only_adds_nodes(accuracies: list[list[float]], num_nodes: int) -> None:
    smaller, larger = (best_tree(accuracies, n) for n in (num_nodes - 1, num_nodes))

    assert set(smaller.paths) <= set(larger.paths)


def test_a_node_is_worth_the_product_along_its_way() -> None:
    accuracies = [[0.6, 0.2], [0.5, 0.1]]

    # 0.6, then 0.6 * 0.5 before the second rank's 0.2, then 0.2 * 0.5.
    for number, added in enumerate([(0,), (0, 0), (1,), (1, 0)], start=1):
        assert added in best_tree(accuracies, number).paths
    assert expected_tokens(accuracies, best_tree(accuracies, 4)) == pytest.approx(1.2)


def test_a_rank_can_be_better_than_the_one_before_it() -> None:
    assert best_tree([[0.1, 0.7]], 1).paths == ((1,),)


def test_what_is_never_right_is_left_out() -> None:
    assert best_tree([[0.5, 0.0], [0.0]], 9).paths == ((0,),)
    assert len(best_tree([], 5)) == 0


@pytest.mark.parametrize("wrong", [1.5, -0.1, float("nan")])
def test_an_accuracy_that_is_no_share_is_refused(wrong: float) -> None:
    with pytest.raises(ConfigError, match=f"from 0 to 1, got {wrong} of rank 1 at depth 2"):
        best_tree([[0.5], [0.5, wrong]], 3)
