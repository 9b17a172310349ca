"""Drafts while they grow: chains that are drawn, and what a node of a tree attends to."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from scipy import stats

from specrag.decoding.tree import ROOT, DraftTree
from specrag.drafters.heads.projection import Projection
from specrag.drafters.neural.head_row import HeadRow
from specrag.drafters.neural.head_task import DrawnChain, HeadTask
from specrag.drafters.trees.dynamic_tree import DynamicTree
from tests.drafters.kit import VOCAB, context

IDS = torch.tensor([4, 9, 11, 30])
LOGITS = torch.tensor([[0.6, -1.0, 0.7, 0.0]], dtype=torch.float64)
PROJECTION = Projection(torch.zeros(len(IDS), 2, dtype=torch.float64), VOCAB, IDS)


def drawn(seed: int, mode: str = "sampled", most: int = 1) -> DraftTree:
    row = HeadRow(context((5, 6), mode, seed, rejection=True))
    task = HeadTask(row, (), DrawnChain(most))
    while task.growing.frontier:
        task.grow(LOGITS, PROJECTION)
    return task.growing.tree()


def test_tokens_are_drawn_from_the_law_that_comes_with_them() -> None:
    law = torch.zeros(VOCAB, dtype=torch.float64)
    law[IDS] = torch.softmax(LOGITS[0], dim=-1)
    counts: Counter[int] = Counter()
    for seed in range(600):
        tree = drawn(seed)
        assert tree.draft_probs is not None
        assert torch.allclose(tree.draft_probs, law.unsqueeze(0))
        assert tree.confidences == pytest.approx([float(law.square().sum())])
        counts[tree.token_ids[0]] += 1
    observed = [counts[token] for token in IDS.tolist()]
    assert sum(observed) == 600
    assert stats.chisquare(observed, (600 * law[IDS]).tolist()).pvalue > 0.001


def test_a_greedy_row_draws_the_likeliest_token_with_certainty() -> None:
    tree = drawn(0, "greedy", 3)
    assert tree == DraftTree.chain([11, 11, 11])
    assert tree.draft_probs is not None
    assert tree.draft_probs.argmax(-1).tolist() == [11] * 3
    assert tree.draft_probs.sum() == 3.0
    assert tree.confidences == (1.0, 1.0, 1.0)


def test_processors_see_the_tokens_of_the_chain() -> None:
    # The penalty falls on what was drafted, so the same token is not drafted for ever.
    assert len(set(drawn(0, "penalised", 3).token_ids)) > 1


def test_a_chain_ends_where_no_token_is_left() -> None:
    row = HeadRow(context((5, 6), "sampled", rejection=True))
    chain = DrawnChain(3)
    chain.draw(row, torch.full((VOCAB,), -torch.inf), ())
    assert (chain.frontier, len(chain.tree())) == ([], 0)
    assert chain.tree().draft_probs is None


def test_nodes_of_a_tree_attend_to_what_is_assumed_and_to_their_ancestors() -> None:
    task = HeadTask(HeadRow(context((5, 6))), (20, 21), DynamicTree(9, 3, 2))
    task.states[ROOT] = torch.tensor(0.0)
    task.grow(LOGITS, PROJECTION)
    assert [task.growing.candidates[node].token for node in task.growing.frontier] == [11, 4]
    assert task.level() == [(11, torch.tensor(0.0), 2), (4, torch.tensor(0.0), 2)]
    assert [task.visible(node) for node in task.growing.frontier] == [[0, 1], [0, 1]]

    for place, node in enumerate(task.growing.frontier):
        task.slots[node], task.states[node] = 2 + place, torch.tensor(1.0 + place)
    task.grow(LOGITS.expand(2, -1), PROJECTION)
    for (token, state, depth), node in zip(task.level(), task.growing.frontier, strict=True):
        parent = task.growing.candidates[node].parent
        assert (token, depth) == (task.growing.candidates[node].token, 3)
        assert state == task.states[parent]
        assert task.visible(node) == [0, 1, task.slots[parent]]
