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
def run_pass(cache: KVCache, marks: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    """Writes one pass as a model does; values are the negated keys."""
    cache.begin_pass(len(marks[0]))
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
    run_pass(cache, [[*row, *([-1] * (width - len(row)))] for row in tokens])
    cache.commit([range(len(row)) for row in tokens])
    return cache


def assert_holds(cache: KVCache, rows: Sequence[Sequence[int]]) -> None:
    assert cache.lengths == tuple(len(row) for row in rows)
    assert cache.batch_size == len(rows)
    assert cache.max_length == cache.get_seq_length() == max((len(row) for row in rows), default=0)
    for number, layer in enumerate(cache.layers):
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

    def begin(self, num_nodes: int) -> list[list[int]]:
        count = len(self.rows) * num_nodes
        fresh = list(range(self.marks + 1, self.marks + 1 + count))
        self.marks += count
        self.pending = [fresh[i : i + num_nodes] for i in range(0, count, num_nodes)]
        return self.pending

    def commit(self, paths: Sequence[Sequence[int]]) -> None:
        for row, nodes, path in zip(self.rows, self.pending, paths, strict=True):
            row.extend(nodes[node] for node in path)


def one_pass(cache: KVCache, oracle: Oracle, num_nodes: int) -> None:
    seen = run_pass(cache, oracle.begin(num_nodes))
    assert cache.num_pending == num_nodes
    end = max(len(row) for row in oracle.rows) + num_nodes
    for layer, keys in enumerate(seen):
        assert keys.shape[2] == end
        for row, (committed, nodes) in enumerate(zip(oracle.rows, oracle.pending, strict=True)):
            visible = [*committed, *nodes]
            assert torch.equal(keys[row, :, : len(visible)], states([visible], layer)[0])


@given(batch=st.integers(1, 4), capacity=st.integers(1, 6), data=st.data())
@settings(max_examples=80, deadline=None)
def test_any_sequence_of_operations_holds_what_the_oracle_holds(
    batch: int, capacity: int, data: st.DataObject
) -> None:
    cache, oracle = KVCache(len(LAYERS), batch, capacity), Oracle([[] for _ in range(batch)])
    one_pass(cache, oracle, 1)
    cache.commit([[] for _ in range(batch)])
    operations = st.lists(
        st.sampled_from(["pass", "pass", "abandon", "rollback", "select"]), max_size=8
    )
    for operation in data.draw(operations):
        if operation == "select":
            order = data.draw(st.permutations(range(len(oracle.rows))))
            kept = order[: data.draw(st.integers(1, len(order)))]
            cache.select_rows(kept)
            oracle.rows = [oracle.rows[row] for row in kept]
        elif operation == "rollback":
            lengths = [data.draw(st.integers(0, len(row))) for row in oracle.rows]
            cache.rollback(lengths)
            oracle.rows = [row[:n] for row, n in zip(oracle.rows, lengths, strict=True)]
        else:
            num_nodes = data.draw(st.integers(1, 6))
            one_pass(cache, oracle, num_nodes)
            if operation == "abandon":
                continue
            nodes = st.sets(st.integers(0, num_nodes - 1)).map(sorted)
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
