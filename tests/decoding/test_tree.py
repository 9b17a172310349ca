"""Draft trees: merging, cutting, and the mask against the definition of an ancestor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specrag.decoding.tree import ROOT, DraftTree, pack

tokens = st.integers(0, 5)
paths = st.lists(st.lists(tokens, max_size=5), max_size=6)


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    edges: dict[tuple[int, int], None] = {}
    for _ in range(draw(st.integers(0, 9))):
        edges.setdefault((draw(st.integers(ROOT, len(edges) - 1)), draw(tokens)))
    return DraftTree(tuple(token for _, token in edges), tuple(parent for parent, _ in edges))


def words(tree: DraftTree) -> list[tuple[int, ...]]:
    """The tokens from the root down to each node."""
    return [tuple(tree.token_ids[n] for n in tree.path_to(node)) for node in range(len(tree))]


def ancestors(tree: DraftTree, node: int) -> set[int]:
    """By definition: the node's parent and the parent's ancestors."""
    parent = tree.parents[node]
    return set() if parent == ROOT else {parent} | ancestors(tree, parent)


@given(paths)
def test_merged_paths_are_the_prefixes_of_all_paths(found: list[list[int]]) -> None:
    tree = DraftTree.from_paths(found)
    prefixes = {tuple(path[:end]) for path in found for end in range(1, len(path) + 1)}

    assert len(tree) == len(prefixes)
    assert set(words(tree)) == prefixes


@given(st.lists(tokens, max_size=6))
def test_a_chain_is_one_path(found: list[int]) -> None:
    tree = DraftTree.chain(found)

    assert tree == DraftTree.from_paths([found])
    assert tree.depths == tuple(range(1, len(found) + 1))
    assert tree.max_depth == len(found)


@given(trees())
def test_depth_and_path_agree_with_the_ancestors(tree: DraftTree) -> None:
    for node in range(len(tree)):
        path = tree.path_to(node)
        assert set(path) == ancestors(tree, node) | {node}
        assert list(path) == sorted(path)
        assert tree.depths[node] == len(path)
    assert tree.path_to(ROOT) == ()
    assert tree.max_depth == max([len(word) for word in words(tree)], default=0)


@given(trees())
def test_children_are_found_by_parent_and_token(tree: DraftTree) -> None:
    children = tree.children()

    assert len(children) == len(tree)
    for (parent, token), node in children.items():
        assert (tree.parents[node], tree.token_ids[node]) == (parent, token)


@given(tree=trees(), num_nodes=st.integers(0, 10), max_depth=st.integers(0, 6))
def test_a_cut_tree_is_the_first_part_of_the_tree_within_the_budget(
    tree: DraftTree, num_nodes: int, max_depth: int
) -> None:
    cut = tree.truncated(num_nodes, max_depth)
    within = [word for word in words(tree) if len(word) <= max_depth]

    assert words(cut) == within[:num_nodes]


@given(tree=trees(), num_nodes=st.integers(0, 10), max_depth=st.integers(0, 6))
def test_a_cut_tree_keeps_the_confidence_of_each_node(
    tree: DraftTree, num_nodes: int, max_depth: int
) -> None:
    marks = {word: float(node) for node, word in enumerate(words(tree))}
    cut = DraftTree(tree.token_ids, tree.parents, tuple(marks.values())).truncated(
        num_nodes, max_depth
    )

    assert list(cut.confidences) == [marks[word] for word in words(cut)]


def test_confidences_are_for_all_nodes_or_none() -> None:
    assert DraftTree.chain([1, 2], [0.5, 0.2]).confidences == (0.5, 0.2)
    with pytest.raises(ValueError, match="2 tokens, 1 confidences"):
        DraftTree.chain([1, 2], [0.5])


def full(tree: DraftTree) -> DraftTree:
    """The tree with confidences, origins and laws that tell its nodes apart."""
    size = len(tree)
    return DraftTree(
        tree.token_ids,
        tree.parents,
        tuple(1 / (1 + node) for node in range(size)),
        tuple((f"d{node}",) for node in range(size)),
        torch.arange(2.0 * size).view(size, 2),
        "prose",
    )


@given(tree=trees(), num_nodes=st.integers(0, 10), max_depth=st.integers(0, 6))
def test_a_cut_tree_keeps_all_that_is_known_of_each_node(
    tree: DraftTree, num_nodes: int, max_depth: int
) -> None:
    whole = full(tree)
    cut = whole.truncated(num_nodes, max_depth)
    places = {word: node for node, word in enumerate(words(tree))}
    kept = [places[word] for word in words(cut)]

    assert cut.domain == "prose"
    assert cut.confidences == tuple(whole.confidences[node] for node in kept)
    assert cut.origins == tuple(whole.origins[node] for node in kept)
    assert cut.draft_probs is not None
    assert whole.draft_probs is not None
    assert torch.equal(cut.draft_probs, whole.draft_probs[kept])


@given(trees())
def test_what_lies_below_a_node_is_a_tree_of_its_own(tree: DraftTree) -> None:
    whole, all_words = full(tree), words(tree)
    for node, above in enumerate(all_words):
        below = whole.below(node)
        inner = {w[len(above) :]: i for i, w in enumerate(all_words) if w[: len(above)] == above}
        del inner[()]
        kept = [inner[word] for word in words(below)]
        assert kept == sorted(inner.values())
        assert below.origins == tuple(whole.origins[n] for n in kept)
        assert below.domain == "prose"
        expected = [whole.confidences[n] / whole.confidences[node] for n in kept]
        assert below.confidences == pytest.approx(expected)
        assert len(tree.below(node)) == len(kept)


@pytest.mark.parametrize("name", ["origins", "draft_probs"])
def test_what_is_known_of_nodes_is_known_of_all_or_none(name: str) -> None:
    given: dict[str, Any] = {name: torch.ones(1, 2) if name == "draft_probs" else (("a",),)}

    with pytest.raises(ValueError, match=f"{name} for each token or none: 2 tokens, 1 {name}"):
        DraftTree((1, 2), (ROOT, 0), **given)


@pytest.mark.parametrize(("width", "expected"), [(0, 3), (2, 3), (7, 7)])
def test_a_pass_can_be_asked_to_be_wider(width: int, expected: int) -> None:
    packed = pack([5, 6], [DraftTree.chain([1, 2]), DraftTree()], width=width)

    assert packed.token_ids.shape == (2, expected)
    assert packed.visible[:, 3:].sum() == 2 * max(0, expected - 3)


@pytest.mark.parametrize(
    ("token_ids", "parents", "problem"),
    [
        ((1, 2), (ROOT,), "2 tokens, 1 parents"),
        ((1,), (0,), "node 0 has parent 0"),
        ((1, 2), (1, ROOT), "node 0 has parent 1"),
        ((1,), (-2,), "node 0 has parent -2"),
        ((1, 1), (ROOT, ROOT), "node 1 repeats token 1 below parent -1"),
        ((1, 2, 2), (ROOT, 0, 0), "node 2 repeats token 2 below parent 0"),
    ],
)
def test_what_is_no_tree_is_refused(
    token_ids: tuple[int, ...], parents: tuple[int, ...], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        DraftTree(token_ids, parents)


@given(st.lists(st.tuples(tokens, trees()), min_size=1, max_size=4))
def test_a_packed_node_sees_its_ancestors_the_root_and_itself(
    rows: Sequence[tuple[int, DraftTree]],
) -> None:
    packed = pack([root for root, _ in rows], [tree for _, tree in rows])
    width = 1 + max(len(tree) for _, tree in rows)

    assert packed.token_ids.shape == packed.depths.shape == (len(rows), width)
    assert packed.visible.shape == (len(rows), width, width)
    assert packed.token_ids.dtype == packed.depths.dtype == torch.int64
    for row, (root, tree) in enumerate(rows):
        size = 1 + len(tree)
        assert packed.token_ids[row, :size].tolist() == [root, *tree.token_ids]
        assert packed.depths[row, :size].tolist() == [0, *tree.depths]
        seen = [set(mask.nonzero().flatten().tolist()) for mask in packed.visible[row]]
        assert seen[0] == {0}
        for node in range(len(tree)):
            assert seen[node + 1] == {0, node + 1, *(n + 1 for n in ancestors(tree, node))}
        for padding in range(size, width):
            assert seen[padding] == {padding}
            assert packed.depths[row, padding] == 0
