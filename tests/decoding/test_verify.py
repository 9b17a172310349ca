"""Verification against the definition of plain decoding: one choice after the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.decoding.sampling import SamplingParams, TokenSampler
from specrag.decoding.tree import ROOT, DraftTree
from specrag.decoding.verify import Verification, verify
from tests.oracles.verification import plain_verification

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


@given(trees(), answers)
def test_the_path_is_the_longest_that_spells_the_answer(tree: DraftTree, answer: list[int]) -> None:
    found = verify(tree, says(answer))
    path, tokens = plain_verification(tree, lambda before: answer[len(before)])

    assert (found.path, found.token_ids) == (path, tokens)
    assert found.num_accepted == len(path)
    assert found.accepted == tokens[:-1]
    assert list(tokens) == answer[: len(tokens)]


def logits_after(text: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(VOCAB, generator=torch.Generator().manual_seed(hash(text) % 2**31))


@given(
    trees(),
    st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.0, 0.7, 2.0]),
        top_k=st.integers(0, 3),
        repetition_penalty=st.sampled_from([1.0, 1.5]),
        frequency_penalty=st.sampled_from([0.0, 0.8]),
        seed=st.integers(0, 2**40),
    ),
)
@settings(deadline=None)
def test_the_emitted_tokens_are_the_targets_own_draws_one_after_the_other(
    tree: DraftTree, params: SamplingParams
) -> None:
    prompt = (1, 3, 3)
    sampler = TokenSampler(params, prompt_length=len(prompt))
    # Each node's logits, as one pass of the target gives them.
    texts = [prompt, *(tuple(tree.token_ids[s] for s in tree.path_to(n)) for n in range(len(tree)))]
    rows = torch.stack(
        [logits_after(prompt + text if at else text) for at, text in enumerate(texts)]
    )

    def choose(node: int, accepted: tuple[int, ...]) -> int:
        text = torch.tensor(prompt + accepted)
        return sampler.choose(rows[node + 1], text, len(text))

    def choose_after(before: tuple[int, ...]) -> int:
        text = torch.tensor(prompt + before)
        return TokenSampler(params, prompt_length=len(prompt)).choose(
            logits_after(prompt + before), text, len(text)
        )

    found = verify(tree, choose)
    assert (found.path, found.token_ids) == plain_verification(tree, choose_after)


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
