"""The cache against an oracle that keeps a plain list of marks for each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.models.kv_cache import KVCache

# Heads and width of each layer: different, so that a mix-up of layers cannot pass.
LAYERS = ((2, 3), (1, 4))


def states(marks: Sequence[Sequence[int]], layer: int) -> torch.Tensor:
    """Keys ``[batch, heads, nodes, width]`` in which every number of a node is its mark."""
    heads, width = LAYERS[layer]
    return torch.tensor(marks).float()[:, None, :, None].repeat(1, heads, 1, width) + layer / 4


@torch.inference_mode()
def run_pass(cache: KVCache, marks: Sequence[Sequence[int]], kept: int = 0) -> list[torch.Tensor]:
    """Writes one pass as a model does; values are the negated keys."""
    cache.begin_pass(len(marks[0]), kept)
    seen = []
    for layer in range(len(LAYERS)):
        keys = states(marks, layer)
        returned_keys, returned_values = cache.update(keys, -keys, layer)
        assert torch.equal(returned_keys, -returned_values)
        seen.append(returned_keys)
    return seen


def filled(tokens: Sequence[Sequence[int]], capacity: int = 8) -> KVCache:
    """A cache that holds these marks, rows of any length."""
    width = max(len(row) for row in tokens)
    cache = KVCache(len(LAYERS), len(tokens), capacity)
    if not width:
        return cache
    run_pass(cache, [[*row, *([-1] * (width - len(row)))] for row in tokens])
    cache.commit([range(len(row)) for row in tokens])
    return cache


def assert_holds(cache: KVCache, rows: Sequence[Sequence[int]]) -> None:
    assert cache.lengths == tuple(len(row) for row in rows)
    assert cache.batch_size == len(rows)
    assert cache.max_length == cache.get_seq_length() == max((len(row) for row in rows), default=0)
    for number, layer in enumerate(cache.layers):
        if not layer.is_initialized:
            assert not any(rows)
            continue
        for row, marks in enumerate(rows):
            expected = states([marks], number)[0]
            assert torch.equal(layer.keys[row, :, : len(marks)], expected)
            assert torch.equal(layer.values[row, :, : len(marks)], -expected)


@dataclass
class Oracle:
    """What a cache must hold, in lists."""

    rows: list[list[int]]
    marks: int = 0
    pending: list[list[int]] = field(default_factory=list)

    def begin(self, num_nodes: int, kept: bool = False) -> list[list[int]]:
        """Returns the marks of the new nodes of each row."""
        fresh = [self.fresh(num_nodes) for _ in self.rows]
        before = self.pending if kept and self.pending else [[] for _ in self.rows]
        self.pending = [[*old, *new] for old, new in zip(before, fresh, strict=True)]
        return fresh

    def fresh(self, count: int) -> list[int]:
        self.marks += count
        return list(range(self.marks - count + 1, self.marks + 1))

    def commit(self, paths: Sequence[Sequence[int]]) -> None:
        for row, nodes, path in zip(self.rows, self.pending, paths, strict=True):
            row.extend(nodes[node] for node in path)
        self.pending = []


def one_pass(cache: KVCache, oracle: Oracle, num_nodes: int, kept: bool = False) -> None:
    before = cache.num_pending if kept else 0
    seen = run_pass(cache, oracle.begin(num_nodes, kept), before)
    assert cache.num_pending == before + num_nodes
    end = max(len(row) for row in oracle.rows) + cache.num_pending
    for layer, keys in enumerate(seen):
        assert keys.shape[2] == end
        for row, (committed, nodes) in enumerate(zip(oracle.rows, oracle.pending, strict=True)):
            visible = [*committed, *nodes]
            assert torch.equal(keys[row, :, : len(visible)], states([visible], layer)[0])


def join(cache: KVCache, oracle: Oracle, data: st.DataObject) -> None:
    """Adds rows that were filled in a cache of their own, or never filled at all."""
    marks = [
        oracle.fresh(data.draw(st.integers(0, 4))) for _ in range(data.draw(st.integers(1, 2)))
    ]
    other = filled(marks, capacity=data.draw(st.integers(1, 9)))
    cache.join(other)
    assert_holds(other, marks)
    oracle.rows += [list(row) for row in marks]


@given(batch=st.integers(0, 4), capacity=st.integers(1, 6), data=st.data())
@settings(max_examples=100, deadline=None)
def test_any_sequence_of_operations_holds_what_the_oracle_holds(
    batch: int, capacity: int, data: st.DataObject
) -> None:
    cache, oracle = KVCache(len(LAYERS), batch, capacity), Oracle([[] for _ in range(batch)])
    operations = st.lists(
        st.sampled_from(["pass", "pass", "level", "abandon", "rollback", "select", "join"]),
        max_size=9,
    )
    for operation in data.draw(operations):
        if operation == "select":
            rows = st.integers(0, len(oracle.rows) - 1)
            kept = data.draw(st.lists(rows, max_size=5)) if oracle.rows else []
            cache.select_rows(kept)
            oracle.rows = [list(oracle.rows[row]) for row in kept]
            oracle.pending = []
        elif operation == "rollback":
            lengths = [data.draw(st.integers(0, len(row))) for row in oracle.rows]
            cache.rollback(lengths)
            oracle.rows = [row[:n] for row, n in zip(oracle.rows, lengths, strict=True)]
            oracle.pending = []
        elif operation == "join":
            cache.rollback(cache.lengths)
            oracle.pending = []
            join(cache, oracle, data)
        elif oracle.rows:
            one_pass(cache, oracle, data.draw(st.integers(1, 6)), kept=operation == "level")
            if operation == "abandon":
                continue
            for _ in range(data.draw(st.integers(0, 2))):
                one_pass(cache, oracle, data.draw(st.integers(1, 3)), kept=True)
            nodes = st.sets(st.integers(0, cache.num_pending - 1)).map(sorted)
            paths = [data.draw(nodes) for _ in oracle.rows]
            cache.commit(paths)
            oracle.commit(paths)
            cache.check_integrity()
        assert_holds(cache, oracle.rows)
    assert cache.capacity >= cache.max_length


def test_growth_keeps_the_tokens_and_at_least_doubles() -> None:
    cache = filled([[1, 2, 3], [4]], capacity=4)
    run_pass(cache, [[5, 6], [7, 8]])

    assert cache.capacity == 8
    assert_holds(cache, [[1, 2, 3], [4]])
    run_pass(cache, [list(range(30)), list(range(30))])
    assert cache.capacity == 33
    assert_holds(cache, [[1, 2, 3], [4]])


def test_a_new_pass_replaces_an_abandoned_one() -> None:
    cache = filled([[1], [2, 3]])
    run_pass(cache, [[10, 11], [12, 13]])
    run_pass(cache, [[20], [21]])
    cache.commit([[0], [0]])

    assert_holds(cache, [[1, 20], [2, 3, 21]])


@pytest.mark.parametrize("drop", [lambda c: c.rollback([1, 2]), lambda c: c.select_rows([0, 1])])
def test_pending_nodes_cannot_be_committed_after_a_change(drop: Callable[[KVCache], None]) -> None:
    cache = filled([[1], [2, 3]])
    run_pass(cache, [[10], [11]])
    drop(cache)

    with pytest.raises(ValueError, match="a pass of 0 nodes"):
        cache.commit([[0], [0]])


@pytest.mark.parametrize("kept", [1, 3, -1])
def test_a_pass_keeps_all_pending_nodes_or_none(kept: int) -> None:
    cache = filled([[1], [2, 3]])
    run_pass(cache, [[10, 11], [12, 13]])

    with pytest.raises(ValueError, match=f"cannot keep {kept} of 2 pending nodes"):
        cache.begin_pass(1, kept)
    cache.commit([[0, 1], [1]])  # the refused pass changed nothing
    assert_holds(cache, [[1, 10, 11], [2, 3, 13]])


def test_growing_keeps_pending_nodes_in_their_slots() -> None:
    cache = filled([[1], [2, 3]], capacity=4)
    run_pass(cache, [[10, 11], [12, 13]])
    run_pass(cache, [list(range(20, 30)), list(range(30, 40))], kept=2)
    cache.commit([[1, 3, 11], [0, 2]])

    assert_holds(cache, [[1, 11, 21, 29], [2, 3, 12, 30]])


def test_a_row_selected_twice_is_two_rows() -> None:
    cache = filled([[1, 2], [3]])
    cache.select_rows([0, 0, 1])
    run_pass(cache, [[10], [11], [12]])
    cache.commit([[0], [0], []])

    assert_holds(cache, [[1, 2, 10], [1, 2, 11], [3]])


@pytest.mark.parametrize("used", [True, False])
def test_rows_can_join_a_cache_that_has_none(used: bool) -> None:
    cache = KVCache(len(LAYERS), 0, 2)
    if used:
        cache = filled([[1, 2]])
        cache.select_rows([])
    cache.join(filled([[3, 4, 5], [6]], capacity=3))

    cache.check_integrity()
    assert_holds(cache, [[3, 4, 5], [6]])


def test_joined_rows_are_copies() -> None:
    cache, other = filled([[1]]), filled([[2, 3]])
    cache.join(other)
    other.rollback([0])
    run_pass(other, [[9, 9]])

    assert_holds(cache, [[1], [2, 3]])


def test_a_cache_can_join_itself() -> None:
    cache = filled([[1], [2, 3]])
    cache.join(cache)

    assert_holds(cache, [[1], [2, 3], [1], [2, 3]])


@pytest.mark.parametrize("mine", [True, False])
def test_rows_do_not_join_while_nodes_are_pending(mine: bool) -> None:
    caches = [filled([[1]]), filled([[2, 3]])]
    run_pass(caches[0], [[4]])
    cache, other = caches if mine else caches[::-1]

    with pytest.raises(ValueError, match="nodes pending; commit or roll back first"):
        cache.join(other)
    assert (cache.batch_size, other.batch_size) == (1, 1)


def test_rows_of_another_model_do_not_join() -> None:
    cache, other = filled([[1]]), KVCache(len(LAYERS) + 1, 1)
    with pytest.raises(ValueError, match="their layers differ"):
        cache.join(other)
    wide = filled([[1]])
    wide.layers[1].keys = wide.layers[1].keys.repeat(1, 1, 1, 2)
    with pytest.raises(ValueError, match="their layers differ"):
        cache.join(wide)
    assert_holds(cache, [[1]])


@given(
    rows=st.lists(st.integers(0, 6), min_size=1, max_size=3),
    others=st.lists(st.integers(0, 6), min_size=1, max_size=3),
    capacity=st.integers(1, 4),
    data=st.data(),
)
@settings(max_examples=40, deadline=None)
def test_an_exported_row_is_what_an_imported_one_holds(
    rows: list[int], others: list[int], capacity: int, data: st.DataObject
) -> None:
    marks = [[10 * row + i for i in range(count)] for row, count in enumerate(rows, start=1)]
    source = filled(marks)
    row = data.draw(st.integers(0, len(rows) - 1))
    length = data.draw(st.integers(0, rows[row]))
    states = source.export_row(row, length)
    slot = data.draw(st.integers(0, len(others) - 1))
    held = [[-10 * other - i for i in range(count)] for other, count in enumerate(others, 1)]
    held[slot] = []
    assert_holds(source, marks)
    source.rollback([0] * len(rows))
    run_pass(source, [[99] * 6] * len(rows))  # a copy does not change with its origin
    cache = filled(held, capacity)
    cache.import_row(slot, states)
    held[slot] = marks[row][:length]

    assert_holds(cache, held)
    run_pass(cache, [[98] * 6] * len(others))
    cache.commit([[]] * len(others))
    cache.check_integrity()
    assert_holds(cache, held)


def test_what_cannot_be_exported_is_refused() -> None:
    cache = filled([[1], [2, 3]])
    for row, length in [(0, 2), (1, 3), (1, -1)]:
        with pytest.raises(ValueError, match=f"cannot export {length} tokens"):
            cache.export_row(row, length)
    for row in (2, -1):
        with pytest.raises(ValueError, match=f"there is no row {row}"):
            cache.export_row(row, 1)


def test_what_cannot_be_imported_is_refused_and_changes_nothing() -> None:
    cache, states = filled([[1], []]), filled([[4, 5]]).export_row(0, 2)
    with pytest.raises(ValueError, match="cannot import into row 0: it holds 1 tokens"):
        cache.import_row(0, states)
    with pytest.raises(ValueError, match="there is no row 2"):
        cache.import_row(2, states)
    keys, values = states[1]
    for wrong in (states[:1], states[::-1], [states[0], (keys[:, :1], values)]):
        with pytest.raises(ValueError, match="its layers differ"):
            cache.import_row(1, wrong)
    assert_holds(cache, [[1], []])
    run_pass(cache, [[6], [7]])
    with pytest.raises(ValueError, match="1 nodes are pending"):
        cache.import_row(1, states)


def test_a_batch_of_no_rows_is_possible() -> None:
    cache = filled([[1, 2]])
    cache.select_rows([])

    assert cache.lengths == ()
    assert cache.max_length == 0
    cache.check_integrity()


@pytest.mark.parametrize(
    "path",
    [[2], [0, 2], [-1], [-1, 0], [1, 0], [0, 0], [1, 1]],
    ids=["outside", "end outside", "negative", "starts negative", "backwards", "twice", "again"],
)
def test_a_bad_path_is_refused_and_changes_nothing(path: list[int]) -> None:
    cache = filled([[1], [2, 3]])
    run_pass(cache, [[10, 11], [12, 13]])

    with pytest.raises(ValueError, match="is not a path in a pass of 2 nodes"):
        cache.commit([[1], path])
    assert_holds(cache, [[1], [2, 3]])
    cache.commit([[1], [0]])  # the pass is still there
    assert_holds(cache, [[1, 11], [2, 3, 12]])


@pytest.mark.parametrize("paths", [[], [[0]], [[0], [0], [0]]])
def test_paths_for_another_number_of_rows_are_refused(paths: list[list[int]]) -> None:
    cache = filled([[1], [2]])
    run_pass(cache, [[3], [4]])

    with pytest.raises(ValueError, match=f"got {len(paths)} paths for 2 rows"):
        cache.commit(paths)


@pytest.mark.parametrize("lengths", [[2, 2], [1, 3], [-1, 0]])
def test_a_rollback_to_an_impossible_length_is_refused(lengths: list[int]) -> None:
    cache = filled([[1], [2, 3]])

    with pytest.raises(ValueError, match="cannot roll back to"):
        cache.rollback(lengths)
    assert_holds(cache, [[1], [2, 3]])


def test_a_rollback_of_another_number_of_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="got 1 lengths for 2 rows"):
        filled([[1], [2, 3]]).rollback([1])


@pytest.mark.parametrize("row", [2, -3])
def test_a_row_that_is_not_there_cannot_be_selected(row: int) -> None:
    with pytest.raises(IndexError):
        filled([[1], [2]]).select_rows([0, row])


def nan_in_a_key(cache: KVCache) -> None:
    cache.layers[1].keys[1, 0, 1, 2] = float("nan")


def infinity_in_a_value(cache: KVCache) -> None:
    cache.layers[0].values[0, 1, 0, 0] = float("inf")


def lost_row(cache: KVCache) -> None:
    cache.layers[1].values = cache.layers[1].values[:1]


def other_capacity(cache: KVCache) -> None:
    cache.layers[0].keys = cache.layers[0].keys[:, :, :4]


def length_over_capacity(cache: KVCache) -> None:
    cache._lengths[1] = cache.capacity + 1


def negative_length(cache: KVCache) -> None:
    cache._lengths[0] = -1


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda cache: cache.begin_pass(2), "2 nodes are still pending"),
        (nan_in_a_key, "layer 1 row 1 holds values that are not finite"),
        (infinity_in_a_value, "layer 0 row 0 holds values that are not finite"),
        (lost_row, "layer 1 has lost rows"),
        (other_capacity, "layer 0 has another capacity"),
        (length_over_capacity, "exceed the capacity"),
        (negative_length, "exceed the capacity"),
    ],
)
def test_the_integrity_check_names_planted_damage(
    damage: Callable[[KVCache], None], message: str
) -> None:
    cache = filled([[1], [2, 3]])
    cache.check_integrity()
    with torch.inference_mode():
        damage(cache)

    with pytest.raises(AssertionError, match=message):
        cache.check_integrity()


def test_values_behind_the_committed_tokens_may_be_anything() -> None:
    cache = filled([[1], [2, 3]])
    with torch.inference_mode():
        cache.layers[0].keys[0, :, 1:] = float("nan")

    cache.check_integrity()
