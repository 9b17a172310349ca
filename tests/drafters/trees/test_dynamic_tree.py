from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.decoding.tree import DraftTree
from specrag.drafters.trees.dynamic_tree import DynamicTree
from specrag.drafters.trees.growing_tree import GrowingTree, best_tokens
from tests.oracles.eagle2 import eagle2_tree

VOCAB = 6
Path = tuple[int, ...]


def coarse(seed: int, choices: tuple[float, ...]) -> Callable[[Path], list[float]]:
    """Log-probabilities of few values, so that many scores are equal."""

    def log_probs(path: Path) -> list[float]:
        rng = random.Random(f"{seed} {path}")
        return [rng.choice(choices) for _ in range(VOCAB)]

    return log_probs


def grown(tree: GrowingTree, log_probs: Callable[[Path], list[float]]) -> int:
    """Drives a tree to its end; returns how many nodes were evaluated."""
    evaluated = 0
    while tree.frontier:
        evaluated += len(tree.frontier)
        rows = [log_probs(tree.tokens_to(node)) for node in tree.frontier]
        tree.grow(torch.tensor(rows, dtype=torch.float64))
    return evaluated


def paths_of(tree: DraftTree) -> dict[Path, float]:
    return {
        tuple(tree.token_ids[step] for step in tree.path_to(node)): confidence
        for node, confidence in enumerate(tree.confidences)
    }


@given(
    seed=st.integers(0, 10**6),
    choices=st.sampled_from([(-1.0,), (0.0, -1.0), (-0.5, -1.0, -1.5), (0.0,)]),
    num_nodes=st.integers(1, 14),
    max_depth=st.integers(1, 4),
    branching=st.integers(1, 4),
    width=st.integers(1, 4),
)
@settings(deadline=None, max_examples=200)
def test_the_tree_is_that_of_the_definition_however_many_scores_are_equal(
    seed: int,
    choices: tuple[float, ...],
    num_nodes: int,
    max_depth: int,
    branching: int,
    width: int,
) -> None:
    log_probs = coarse(seed, choices)
    growing = DynamicTree(num_nodes, max_depth, branching, width=width)
    grown(growing, log_probs)
    expected = eagle2_tree(log_probs, num_nodes, max_depth, branching, width)

    tree = growing.tree()  # a node without its parent would be refused by DraftTree
    found = paths_of(tree)
    assert found.keys() == expected.keys()
    assert found == pytest.approx({p: math.exp(score) for p, score in expected.items()})
    assert list(tree.confidences) == sorted(tree.confidences, reverse=True)


def test_a_node_is_evaluated_only_where_its_children_may_be_drafted() -> None:
    def sure(path: Path) -> list[float]:
        return [math.log(0.9)] + [math.log(0.1 / (VOCAB - 1))] * (VOCAB - 1)

    growing = DynamicTree(num_nodes=4, max_depth=6, branching=3)

    # The root, all of the first level, of which nothing better is known, then the chain alone.
    assert grown(growing, sure) == 1 + 3 + 1 + 1
    assert growing.tree() == DraftTree.chain([0, 0, 0, 0])


def test_a_level_is_as_wide_as_the_branching_unless_told_otherwise() -> None:
    flat = coarse(0, (-1.0,))
    for width, expected in ((None, 2), (1, 1), (5, 5)):
        growing = DynamicTree(num_nodes=100, max_depth=3, branching=2, width=width)
        sizes = []
        while growing.frontier:
            sizes.append(len(growing.frontier))
            rows = [flat(growing.tokens_to(node)) for node in growing.frontier]
            growing.grow(torch.tensor(rows))
        assert sizes == [1, min(2, expected), min(2 * min(2, expected), expected)]


def test_unlikely_paths_are_not_drafted() -> None:
    half = [math.log(0.5), math.log(0.3), math.log(0.2), *[-math.inf] * 3]
    growing = DynamicTree(99, 9, 4, width=9, min_score=math.log(0.14))
    grown(growing, lambda _: half)

    expected = {(0,): 0.5, (1,): 0.3, (0, 0): 0.25, (2,): 0.2, (0, 1): 0.15, (1, 0): 0.15}
    assert paths_of(growing.tree()) == pytest.approx(expected)


def test_a_model_that_leaves_no_token_gives_an_empty_tree() -> None:
    growing = DynamicTree(5, 3, 2)
    growing.grow(torch.full((1, VOCAB), -torch.inf))

    assert growing.frontier == []
    assert growing.tree() == DraftTree()


def test_rounding_above_zero_makes_no_child_likelier_than_its_parent() -> None:
    growing = DynamicTree(3, 3, 1)
    grown(growing, lambda _: [1e-7] + [-math.inf] * (VOCAB - 1))

    assert growing.tree().confidences == (1.0, 1.0, 1.0)


@given(keys=st.lists(st.sampled_from([0.0, 1.0, 2.0, -math.inf]), min_size=1, max_size=40))
@settings(deadline=None)
def test_of_equal_tokens_the_lower_one_is_taken(keys: list[float]) -> None:
    allowed = [token for token, key in enumerate(keys) if key > -math.inf]
    ordered = sorted(allowed, key=lambda token: (-keys[token], token))
    for count in (1, 3, len(keys)):
        assert best_tokens(torch.tensor(keys), count) == ordered[:count]
