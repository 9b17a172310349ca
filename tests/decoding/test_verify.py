"""Verification against the definition of plain decoding: one choice after the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specrag.decoding.tree import ROOT, DraftTree
from specrag.decoding.verify import Verification, verify

VOCAB = 4


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    edges: dict[tuple[int, int], None] = {}
    for _ in range(draw(st.integers(0, 14))):
        parent, token = draw(st.integers(ROOT, len(edges) - 1)), draw(st.integers(0, VOCAB - 1))
        edges.setdefault((parent, token))
    return DraftTree(tuple(token for _, token in edges), tuple(parent for parent, _ in edges))


# What the target says after any number of tokens that were its own.
answers = st.lists(st.integers(0, VOCAB - 1), min_size=20, max_size=20)


def says(answer: list[int]) -> Callable[[int, tuple[int, ...]], int]:
    return lambda _, accepted: answer[len(accepted)]


def longest_drafted(tree: DraftTree, answer: list[int]) -> tuple[int, ...]:
    """The oracle: of all nodes, the deepest whose path spells the beginning of the answer."""
    best: tuple[int, ...] = ()
    for node in range(len(tree)):
        path = tree.path_to(node)
        spelled = [tree.token_ids[step] for step in path]
        if spelled == answer[: len(path)] and len(path) > len(best):
            best = path
    return best


@given(trees(), answers)
def test_the_path_is_the_longest_that_spells_the_answer(tree: DraftTree, answer: list[int]) -> None:
    found = verify(tree, says(answer))
    path = longest_drafted(tree, answer)

    assert found.path == path
    assert found.num_accepted == len(path)
    assert list(found.token_ids) == answer[: len(path) + 1]
    assert found.accepted == tuple(tree.token_ids[node] for node in path)


@given(trees(), st.integers(0, 2**32))
def test_the_emitted_tokens_are_the_targets_own_chain_of_choices(
    tree: DraftTree, salt: int
) -> None:
    def own_choice(accepted: tuple[int, ...]) -> int:
        return hash((salt, *accepted)) % VOCAB

    found = verify(tree, lambda _, accepted: own_choice(accepted))
    plain: tuple[int, ...] = ()
    while len(plain) < len(found.token_ids):
        plain += (own_choice(plain),)

    assert found.token_ids == plain


@given(trees(), answers)
def test_the_target_is_asked_once_for_each_node_of_the_path_in_order(
    tree: DraftTree, answer: list[int]
) -> None:
    asked: list[tuple[int, tuple[int, ...]]] = []

    def choose(node: int, accepted: tuple[int, ...]) -> int:
        asked.append((node, accepted))
        return answer[len(accepted)]

    found = verify(tree, choose)

    assert [node for node, _ in asked] == [ROOT, *found.path]
    assert [accepted for _, accepted in asked] == [
        found.accepted[:count] for count in range(len(found.accepted) + 1)
    ]


def test_an_empty_tree_decodes_plainly() -> None:
    assert verify(DraftTree(), lambda node, accepted: 3) == Verification((), (), 3)


@pytest.mark.parametrize(
    ("answer", "path", "tokens"),
    [
        ([1, 2, 3], (0, 1), (1, 2, 3)),  # a whole branch, and the bonus token
        ([1, 3, 2], (0, 3), (1, 3, 2)),  # the other branch below the same node
        ([1, 0, 0], (0,), (1, 0)),  # recovered in the middle
        ([2, 2, 2], (2,), (2, 2)),  # the token 2 is no child of node 2, though it is of node 0
        ([0, 1, 2], (), (0,)),  # nothing accepted
    ],
)
def test_examples(answer: list[int], path: tuple[int, ...], tokens: tuple[int, ...]) -> None:
    tree = DraftTree((1, 2, 2, 3), (ROOT, 0, ROOT, 0))
    found = verify(tree, says(answer))

    assert (found.path, found.token_ids) == (path, tokens)
