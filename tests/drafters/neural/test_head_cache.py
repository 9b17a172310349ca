"""What a head has read, what it drafts beside that, and what a level of a draft costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from specrag.decoding.drafter import DraftContext
from specrag.drafters.eagle import EagleDrafter
from specrag.drafters.neural import head_cache
from specrag.drafters.neural.head_cache import HeadCache, HeadLevel, Node
from specrag.drafters.neural.head_row import HeadRow
from tests.drafters.kit import TOKENIZER, target
from tests.drafters.reading import HIDDEN, eagle_heads, features_of

TEXTS = ((5, 9, 7, 30, 8, 41, 12), (9, 6), (44, 3, 17, 8))


def bound(**shape: Any) -> EagleDrafter:
    drafter = EagleDrafter(eagle_heads(2, **shape))
    drafter.bind(target(), TOKENIZER)
    return drafter


def cache_of(drafter: EagleDrafter) -> HeadCache:
    assert drafter._embed is not None
    return HeadCache(drafter._head, drafter._embed)


def row_of(text: Sequence[int], drafter: EagleDrafter) -> HeadRow:
    row = HeadRow(DraftContext(tuple(text[:-1])))
    row.observe(text[-1:], features_of(tuple(text[:-1]), drafter.feature_layers))
    return row


def read(
    drafter: EagleDrafter, texts: Sequence[Sequence[int]] = TEXTS
) -> tuple[HeadCache, list[HeadRow]]:
    cache, rows = cache_of(drafter), [row_of(text, drafter) for text in texts]
    with torch.inference_mode():
        cache.catch_up(dict(enumerate(rows)))
    return cache, rows


@pytest.mark.parametrize("chunk", [1, 2, 5])
@pytest.mark.parametrize("shape", [{}, {"layer": {"max_positions": 3}, "num_layers": 2}])
def test_texts_read_in_pieces_and_together_are_as_if_read_alone(
    monkeypatch: pytest.MonkeyPatch, chunk: int, shape: dict[str, Any]
) -> None:
    drafter = bound(**shape)
    alone = [read(drafter, [text])[1][0] for text in TEXTS]
    monkeypatch.setattr(head_cache, "_CHUNK", chunk)
    cache, rows = read(drafter)

    assert cache.lengths() == {0: 6, 1: 1, 2: 3}
    for row, wanted in zip(rows, alone, strict=True):
        assert (row.num_read, row.num_unread) == (wanted.num_read, 0)
        for found, expected in ((row.read, wanted.read), (row.state, wanted.state)):
            assert found is not None
            assert expected is not None
            assert torch.allclose(found, expected)


def test_nodes_see_their_text_their_ancestors_and_themselves_only() -> None:
    drafter = bound()
    draw = torch.Generator().manual_seed(1)
    states = torch.randn(9, HIDDEN, generator=draw, dtype=torch.float64)
    first: list[list[Node]] = [
        [(5, states[0], 0, ())],
        [(6, states[1], 0, ()), (7, states[2], 0, ())],
        [],
    ]
    second: list[list[Node]] = [
        [(8, states[3], 1, (0,)), (9, states[4], 1, (0,))],
        [(8, states[5], 1, (1,))],
        [],
    ]
    together, _ = read(drafter)
    with torch.inference_mode():
        together.drafted(first, 0)
        found, _ = together.drafted(second, 2)
        for row, (above, below) in enumerate(zip(first, second, strict=True)):
            for place, node in enumerate(below):
                cache, _ = read(drafter, [TEXTS[row]])
                (parent,) = node[3]
                cache.drafted([[above[parent]]], 0)
                wanted, _ = cache.drafted([[(*node[:3], (0,))]], 1)
                assert torch.allclose(found[row, place], wanted[0, 0])
    assert together.lengths() == {0: 6, 1: 1, 2: 3}


def test_forgetting_everything() -> None:
    cache, _ = read(bound())
    cache.reset()
    assert (cache.rows, cache.lengths()) == ([], {})


@pytest.mark.parametrize("shape", [{}, {"generation": 2}, {"layer": {"max_positions": 8}}])
def test_a_level_is_one_node_with_its_logits(shape: dict[str, Any]) -> None:
    (level,) = bound(**shape).levels
    assert isinstance(level, HeadLevel)
    evaluate = level.prepare()
    assert evaluate() == evaluate()
    assert isinstance(evaluate(), float)


def test_levels_of_other_heads_cost_otherwise() -> None:
    heads = [
        bound(),
        bound(generation=2),
        bound(num_layers=2),
        bound(layer={"qk_norm": True}),
        bound(own_lm_head=True, draft_vocab_size=80),
    ]
    same, *others = [drafter.levels[0].identity for drafter in [bound(), *heads]]
    assert same == others[0]
    assert len(set(others)) == len(heads)
