"""Rows that come and go keep what they hold, whatever the order."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.drafters.neural.row_cache import RowCache
from specrag.models.kv_cache import KVCache

steps = st.lists(
    st.tuples(st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True), st.integers(0, 3)),
    min_size=1,
    max_size=8,
)


def written(cache: RowCache, held: dict[int, list[float]], count: int, first: float) -> None:
    """A pass of nodes that are numbers, of which each row keeps all but, row by row, the last."""
    batch = cache.batch
    batch.begin_pass(count + 1)
    values = torch.arange(first, first + len(cache.rows) * (count + 1)).view(-1, 1, count + 1, 1)
    for layer in range(2):
        batch.update(values, -values, layer)
    kept = [max(0, count - slot % 2) for slot in range(len(cache.rows))]
    batch.commit([range(number) for number in kept])
    for slot, (row, number) in enumerate(zip(cache.rows, kept, strict=True)):
        held.setdefault(row, []).extend(values[slot, 0, :number, 0].tolist())


@given(played=steps)
@settings(deadline=None, max_examples=40)
@torch.inference_mode()  # as all drafting is
def test_every_row_holds_what_was_written_for_it(
    played: list[tuple[list[int], int]],
) -> None:
    cache = RowCache(lambda count: KVCache(2, count, capacity=4))
    held: dict[int, list[float]] = {}
    for number, (rows, count) in enumerate(played):
        cache.arrange(rows)
        assert set(cache.rows) == set(rows)
        written(cache, held, count, 100.0 * number)
        cache.batch.begin_pass(1)  # what is pending counts for nothing
        for layer in range(2):
            pending = torch.full((len(rows), 1, 1, 1), -5.0)
            cache.batch.update(pending, pending, layer)
        cache.batch.rollback(cache.batch.lengths)
        for slot, row in enumerate(cache.rows):
            length = cache.batch.lengths[slot]
            for keys, values in cache.batch.export_row(slot, length):
                assert keys.flatten().tolist() == held[row]
                assert values.flatten().tolist() == [-value for value in held[row]]
    lengths = cache.lengths()
    assert {row: lengths.get(row, 0) for row in held} == {row: len(v) for row, v in held.items()}


def test_rows_that_are_all_there_stay_where_they_are() -> None:
    cache = RowCache(lambda count: KVCache(1, count))
    cache.arrange([3, 1])
    batch = cache.batch
    cache.arrange([1, 3])
    assert cache.rows == [3, 1]
    assert cache.batch is batch


def test_a_cache_must_be_arranged_before_use_and_after_a_reset() -> None:
    cache = RowCache(lambda count: KVCache(1, count))
    for _ in range(2):
        with pytest.raises(AssertionError, match="arrange comes first"):
            _ = cache.batch
        assert cache.lengths() == {}
        cache.arrange([0])
        cache.reset()
