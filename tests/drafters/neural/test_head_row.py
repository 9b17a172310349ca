"""What is known of a row and not read yet: each state with the token that came after it."""

from __future__ import annotations

import pytest
import torch

from specrag.decoding.drafter import DraftContext
from specrag.drafters.neural.head_row import HeadRow

LAYERS = (3, 1)


def states(first: int, count: int) -> dict[int, torch.Tensor]:
    """The state of position p is p and the number of its layer."""
    return {
        layer: torch.tensor([[float(p), float(layer)] for p in range(first, first + count)])
        for layer in LAYERS
    }


def row() -> HeadRow:
    made = HeadRow(DraftContext((10, 11, 12)))
    made.observe([13], states(0, 3))
    made.observe([14, 15, 16], states(3, 3))
    return made


def test_a_row_knows_as_many_states_as_tokens_but_the_last() -> None:
    new = HeadRow(DraftContext((10, 11, 12)))
    assert (new.num_known, new.num_unread, new.num_read) == (0, 0, 0)
    assert (row().num_known, row().num_unread) == (6, 6)


@pytest.mark.parametrize("most", [1, 2, 4, 5, 6, 9])
def test_states_are_handed_out_in_order_however_many_at_a_time(most: int) -> None:
    made, read = row(), 0
    while made.num_unread:
        features, tokens = made.peek(most, LAYERS)
        count = len(tokens)
        assert count == min(most, 6 - read)
        assert tokens == [*range(11 + read, 11 + read + count)]
        for layer, found in zip(LAYERS, features, strict=True):
            assert torch.equal(found, states(read, count)[layer])
        made.has_read(count, torch.tensor(read), torch.tensor(-read))
        assert (made.read, made.state) == (torch.tensor(read), torch.tensor(-read))
        read += count
        assert (made.num_read, made.num_unread, made.num_known) == (read, 6 - read, 6)


def test_looking_takes_nothing_away() -> None:
    made = row()
    assert made.peek(2, LAYERS)[1] == made.peek(2, LAYERS)[1] == [11, 12]


@pytest.mark.parametrize("count", [1, 3])
def test_states_of_another_number_than_tokens_are_a_mistake(count: int) -> None:
    made = row()
    with pytest.raises(AssertionError, match="states for 8 positions"):
        made.observe([17, 18], states(6, count))
