from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.decoding.budget import DraftBudget
from specrag.decoding.tree import ROOT, DraftTree
from specrag.drafters.trees.merge import merge
from tests.oracles import merged_tree

Path = tuple[int, ...]

budgets = st.builds(DraftBudget, st.integers(0, 9), st.integers(0, 4), st.integers(1, 3))


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    """Confidences are halved or kept from parent to child: exact in floating point, often equal."""
    tokens: list[int] = []
    parents: list[int] = []
    confidences: list[float] = []
    for _ in range(draw(st.integers(0, 8))):
        parent, token = draw(st.integers(ROOT, len(tokens) - 1)), draw(st.integers(0, 2))
        if (parent, token) in zip(parents, tokens, strict=True):
            continue
        above = 1.0 if parent == ROOT else confidences[parent]
        tokens.append(token)
        parents.append(parent)
        confidences.append(above * draw(st.sampled_from([1.0, 0.5, 0.25])))
    return DraftTree(tuple(tokens), tuple(parents), tuple(confidences))


several_trees = st.lists(trees(), min_size=1, max_size=3)


def names(members: Sequence[DraftTree]) -> list[str]:
    return [f"drafter {place}" for place in range(len(members))]


def paths(tree: DraftTree) -> list[Path]:
    return [tuple(tree.token_ids[step] for step in tree.path_to(node)) for node in range(len(tree))]


def merge_all(members: Sequence[DraftTree], budget: DraftBudget) -> DraftTree:
    return merge(members, budget, names(members))


@given(members=several_trees, budget=budgets)
@settings(max_examples=100, deadline=None)
def test_it_takes_the_best_node_each_time(members: list[DraftTree], budget: DraftBudget) -> None:
    by_path = [
        {
            path: Fraction(confidence)
            for path, confidence in zip(paths(tree), tree.confidences, strict=True)
        }
        for tree in members
    ]
    expected = merged_tree.merged(
        by_path, budget.num_speculative_tokens, budget.max_depth, budget.branching
    )
    found = merge_all(members, budget)

    assert paths(found) == [path for path, _, _ in expected]
    assert list(found.confidences) == [confidence for _, confidence, _ in expected]
    assert [list(origins) for origins in found.origins] == [
        [names(members)[place] for place in holders] for _, _, holders in expected
    ]


@given(members=several_trees, budget=budgets)
@settings(max_examples=100, deadline=None)
def test_a_parent_is_at_least_as_likely_as_its_children_and_the_best_comes_first(
    members: list[DraftTree], budget: DraftBudget
) -> None:
    tree = merge_all(members, budget)

    assert list(tree.confidences) == sorted(tree.confidences, reverse=True)
    for parent, confidence in zip(tree.parents, tree.confidences, strict=True):
        assert parent == ROOT or tree.confidences[parent] >= confidence


@given(members=several_trees, budget=budgets, more=st.integers(1, 5))
@settings(max_examples=100, deadline=None)
def test_a_budget_for_more_nodes_only_adds_some_at_the_end(
    members: list[DraftTree], budget: DraftBudget, more: int
) -> None:
    small = merge_all(members, budget)
    nodes = budget.num_speculative_tokens
    large = merge_all(members, DraftBudget(nodes + more, budget.max_depth, budget.branching))

    assert paths(large)[: len(small)] == paths(small)


@given(members=several_trees)
@settings(max_examples=60, deadline=None)
def test_without_limits_the_union_is_complete(members: list[DraftTree]) -> None:
    union = merge_all(members, DraftBudget(99, 99, 99))

    assert set(paths(union)) == {path for tree in members for path in paths(tree)}
    assert len(paths(union)) == len(set(paths(union)))


@given(tree=trees())
@settings(max_examples=60, deadline=None)
def test_a_tree_merged_with_itself_stays_as_it_is(tree: DraftTree) -> None:
    budget = DraftBudget(99, 99, 99)
    alone = merge([tree], budget, ["a"])
    twice = merge([tree, tree], budget, ["a", "b"])

    assert twice == alone
    assert twice.confidences == alone.confidences
    assert set(twice.origins) <= {("a", "b")}


def test_weights_scale_each_step_of_a_path() -> None:
    boastful = DraftTree.chain([1, 2], [0.8, 0.8])
    modest = DraftTree.chain([3], [0.5])
    tree = merge([boastful, modest], DraftBudget(3, 3, 2), ["a", "b"], [0.5, 1.0])

    assert paths(tree) == [(3,), (1,), (1, 2)]
    assert tree.confidences == pytest.approx((0.5, 0.4, 0.2))


def test_no_step_is_scaled_above_certainty() -> None:
    tree = merge([DraftTree.chain([1, 2], [0.8, 0.4])], DraftBudget(2, 2), ["a"], [2.0])

    assert tree.confidences == (1.0, 1.0)


def test_a_statement_above_that_of_the_parent_is_cut_to_it() -> None:
    tree = merge([DraftTree.chain([1, 2], [0.5, 0.9])], DraftBudget(2, 2), ["a"])

    assert tree.confidences == (0.5, 0.5)


def test_a_tree_without_confidences_expects_less_of_each_further_step_and_sibling() -> None:
    silent = DraftTree((1, 2, 3), (ROOT, ROOT, 0))
    first, second, below = merge([silent], DraftBudget(3, 3, 2), ["a"]).confidences

    assert 1 > first > second >= below > 0


def test_origins_that_a_tree_states_itself_are_kept() -> None:
    stated = DraftTree((1,), (ROOT,), (0.5,), (("x", "y"),))
    silent = DraftTree.chain([1], [0.4])
    tree = merge([stated, silent, stated], DraftBudget(1, 1), ["a", "b", "c"])

    assert tree.origins == (("x", "y", "b"),)


def test_the_first_domain_is_kept_and_laws_of_drawing_are_dropped() -> None:
    drawn = DraftTree((1,), (ROOT,), draft_probs=torch.ones(1, 4) / 4)
    named = [DraftTree(), DraftTree(domain="code"), DraftTree(domain="math")]
    tree = merge([drawn, *named], DraftBudget(1, 1), list("abcd"))

    assert (tree.token_ids, tree.domain, tree.draft_probs) == ((1,), "code", None)
