"""d2t and t2d: offsets, tokens, contradictions, damage."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.drafters.checkpoints.draft_vocabulary import draft_token_ids
from specrag.errors import ModelError
from tests.drafters.checkpoints.kit import Tensors, offsets

VOCAB = 40


def marks(ids: tuple[int, ...], size: int = VOCAB) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.bool).index_fill(0, torch.tensor(ids, dtype=torch.long), 1)


def read(tensors: Tensors, rows: int | None) -> tuple[list[int] | None, list[str]]:
    notes: list[str] = []
    ids = draft_token_ids(tensors, rows, VOCAB, "head", notes)
    return None if ids is None else ids.tolist(), notes


CHOSEN = st.sets(st.integers(0, VOCAB - 1), min_size=1, max_size=VOCAB - 1).map(
    lambda ids: tuple(sorted(ids))
)


@settings(deadline=None, max_examples=50)
@given(ids=CHOSEN, with_marks=st.booleans(), with_rows=st.booleans())
def test_offsets(ids: tuple[int, ...], with_marks: bool, with_rows: bool) -> None:
    tensors = {"d2t": offsets(ids), **({"t2d": marks(ids)} if with_marks else {})}
    assert read(tensors, len(ids) if with_rows else None) == (list(ids), [])


@settings(deadline=None, max_examples=50)
@given(ids=CHOSEN)
def test_tokens_in_place_of_offsets_are_told_by_t2d(ids: tuple[int, ...]) -> None:
    found, notes = read({"d2t": torch.tensor(ids), "t2d": marks(ids)}, len(ids))
    assert found == list(ids)
    # Of a single token the offset is the token.
    assert notes == (["d2t holds tokens, not offsets"] if len(ids) > 1 else [])


def test_tokens_in_place_of_offsets_are_told_by_their_range() -> None:
    ids = (3, 20, VOCAB - 1)
    assert read({"d2t": torch.tensor(ids)}, 3) == (list(ids), ["d2t holds tokens, not offsets"])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int16])
def test_any_whole_numbers(dtype: torch.dtype) -> None:
    assert read({"d2t": offsets((1, 5)).to(dtype)}, 2) == ([1, 5], [])


def test_t2d_alone_is_enough() -> None:
    assert read({"t2d": marks((2, 9))}, 2) == ([2, 9], ["d2t is missing, and made of t2d"])


def test_an_empty_d2t_beside_a_good_t2d() -> None:
    empty = {"d2t": torch.zeros(2, dtype=torch.long), "t2d": marks((2, 9))}
    assert read(empty, 2) == ([2, 9], ["d2t is empty, and made of t2d"])


def test_t2d_of_another_head() -> None:
    tensors = {"d2t": offsets((2, 9)), "t2d": marks((2, 7))}
    assert read(tensors, 2) == ([2, 9], ["t2d contradicts d2t, and is ignored"])


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"d2t": torch.zeros(VOCAB, dtype=torch.long)},
        {"t2d": torch.ones(VOCAB, dtype=torch.bool)},
        {
            "d2t": torch.zeros(VOCAB, dtype=torch.long),
            "t2d": torch.ones(VOCAB, dtype=torch.bool),
        },
    ],
)
def test_a_whole_vocabulary_needs_no_table(tensors: Tensors) -> None:
    assert read(tensors, VOCAB)[0] is None


def test_a_whole_vocabulary_in_another_order_is_kept() -> None:
    ids = tuple(reversed(range(VOCAB)))
    assert read({"d2t": offsets(ids)}, VOCAB)[0] == list(ids)


@pytest.mark.parametrize(
    ("tensors", "rows", "said"),
    [
        ({}, 3, "names 3 tokens and the target has 40, but no d2t"),
        ({"d2t": torch.tensor([50, 50, 50])}, 3, "3 of 3 lie outside, the first is 50"),
        ({"d2t": torch.tensor([-1, 50, 0])}, 3, "2 of 3 lie outside, the first is -1"),
        ({"d2t": torch.tensor([1, 0, -1])}, 3, "3 entries name 1 tokens"),
        ({"d2t": torch.tensor([0, 1])}, 3, r"must hold 3 whole numbers.*shape \(2,\)"),
        ({"d2t": torch.zeros(3)}, 3, "must hold 3 whole numbers.*float32"),
        ({"d2t": torch.zeros(3, dtype=torch.bool)}, 3, "must hold 3 whole numbers"),
        ({"d2t": torch.zeros(3, 1, dtype=torch.long)}, 3, "must hold 3 whole numbers"),
        ({"t2d": marks((1, 2, 3), 30)}, 3, r"of 30 tokens \(t2d\), this one has 40"),
        ({"t2d": marks((1, 2))}, 3, "no d2t tells"),
    ],
)
def test_damage(tensors: Tensors, rows: int, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        read(tensors, rows)
