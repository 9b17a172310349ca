from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.decoding.budget import DraftBudget
from specrag.decoding.tree import DraftTree
from specrag.drafters.trees.tree_shape import Ranks, StaticTree, TreeShape
from specrag.errors import ConfigError

VOCAB = 8


@st.composite
def shapes(draw: st.DrawFn) -> TreeShape:
    paths: list[Ranks] = []
    for _ in range(draw(st.integers(0, 12))):
        above = draw(st.sampled_from([(), *paths]))
        paths.append((*above, draw(st.integers(0, 3))))
    return TreeShape.from_paths(paths)


def logits_after(path: tuple[int, ...]) -> list[float]:
    rng = random.Random(str(path))
    return torch.log_softmax(torch.tensor([rng.random() for _ in range(VOCAB)]), 0).tolist()


def filled(shape: TreeShape, min_score: float = -math.inf) -> DraftTree:
    growing = StaticTree(shape, min_score)
    while growing.frontier:
        rows = [logits_after(growing.tokens_to(node)) for node in growing.frontier]
        growing.grow(torch.tensor(rows))
    return growing.tree()


def tokens_at(shape: TreeShape) -> set[tuple[int, ...]]:
    """The tokens that stand at the ranks of a shape, looked up one path at a time."""
    found = set()
    for ranks in shape.paths:
        path: tuple[int, ...] = ()
        for rank in ranks:
            logits = logits_after(path)
            path += (sorted(range(VOCAB), key=lambda t: (-logits[t], t))[rank],)
        found.add(path)
    return found


@given(shape=shapes())
@settings(deadline=None, max_examples=60)
def test_every_rank_of_the_shape_gets_its_token(shape: TreeShape) -> None:
    tree = filled(shape) if len(shape) else DraftTree()
    paths = {tuple(tree.token_ids[n] for n in tree.path_to(node)) for node in range(len(tree))}

    assert paths == tokens_at(shape)
    assert list(tree.confidences) == sorted(tree.confidences, reverse=True)


@given(shape=shapes(), budget=st.builds(DraftBudget, *[st.integers(0, 5)] * 2, st.integers(1, 3)))
@settings(deadline=None, max_examples=60)
def test_a_shape_within_a_budget_is_a_tree_within_it(shape: TreeShape, budget: DraftBudget) -> None:
    cut = shape.within(budget)

    assert len(cut) <= budget.num_speculative_tokens
    assert cut.max_depth <= budget.max_depth
    assert all(max(path) < budget.branching for path in cut.paths)
    assert set(cut.paths) <= set(shape.paths)
    assert cut.within(budget) == cut


def test_a_cut_keeps_the_nodes_with_few_levels_and_low_ranks() -> None:
    cut = TreeShape.full(3, 3).within(DraftBudget(6, 3, 3))

    assert cut.paths == ((0,), (1,), (0, 0), (2,), (0, 1), (1, 0))


def test_the_usual_shapes() -> None:
    assert TreeShape.chain(3).paths == ((0,), (0, 0), (0, 0, 0))
    assert len(TreeShape.full(2, 3)) == 2 + 4 + 8
    assert TreeShape.full(2, 3).max_depth == 3
    assert TreeShape.chain(0) == TreeShape(())
    assert TreeShape.from_paths([[0, 1], [0]]).paths == ((0,), (0, 1))
    assert TreeShape.from_paths([(0,), (0,)]) == TreeShape.chain(1)


def test_ranks_may_be_left_out() -> None:
    assert len(filled(TreeShape.from_paths([(2,), (2, 1)]))) == 2


def test_unlikely_nodes_are_left_out_with_what_is_below_them() -> None:
    whole = filled(TreeShape.full(3, 3))
    least = whole.confidences[9]
    kept = filled(TreeShape.full(3, 3), math.log(least) - 1e-9)

    assert kept == whole.truncated(10, 3)


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ([(0, 0)], r"the tree shape has \(0, 0\) without its parent \(0,\)"),
        ([()], r"needs at least one rank, 0 or more, got \(\)"),
        ([(0,), (-1,)], r"0 or more, got \(-1,\)"),
    ],
)
def test_what_is_no_tree_is_refused(paths: list[Ranks], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TreeShape.from_paths(paths)


@pytest.mark.parametrize(("branching", "depth"), [(0, 2), (2, -1)])
def test_a_full_tree_needs_children_and_levels(branching: int, depth: int) -> None:
    with pytest.raises(ConfigError, match=f"got branching={branching} and depth={depth}"):
        TreeShape.full(branching, depth)
