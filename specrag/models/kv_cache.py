"""The key/value cache of a target: preallocated, ragged, committed and rolled back by node.

A transformers ``Cache``, so that unmodified models write to it. Depends on torch and transformers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


class _Layer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of one layer, ``[batch, heads, capacity, head_dim]`` each."""

    is_sliding = False
    is_croppable = True

    def __init__(self, owner: KVCache) -> None:
        super().__init__()
        self._owner = owner

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys = self._allocate(key_states)
        self.values = self._allocate(value_states)
        self.is_initialized = True

    def _allocate(self, like: torch.Tensor) -> torch.Tensor:
        heads, width = like.shape[-3], like.shape[-1]
        # Zeros, not empty: masked slots still enter the attention product, and 0 * NaN is NaN.
        return like.new_zeros(self._owner.batch_size, heads, self._owner.capacity, width)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        return (
            self._owner.write(self.keys, key_states),
            self._owner.write(self.values, value_states),
        )

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return max(self._owner.max_length + query_length, self._owner.num_slots), 0

    def get_seq_length(self) -> int:
        return self._owner.max_length

    def get_max_length(self) -> int:
        return -1

    def resize(self, capacity: int, used: int) -> None:
        if self.is_initialized:
            self.keys = _resized(self.keys, capacity, used)
            self.values = _resized(self.values, capacity, used)

    def join(self, other: _Layer, used: int) -> None:
        """Appends the rows of the same layer of another cache, of which ``used`` slots count."""
        if not (self.is_initialized or other.is_initialized):
            return
        if not self.is_initialized:
            self.lazy_initialization(other.keys, other.values)
        if other.is_initialized:
            keys = _resized(other.keys, self._owner.capacity, used).to(self.keys)
            values = _resized(other.values, self._owner.capacity, used).to(self.values)
        else:
            count = other._owner.batch_size
            keys = self.keys.new_zeros(count, *self.keys.shape[1:])
            values = self.values.new_zeros(count, *self.values.shape[1:])
        self.keys = torch.cat([self.keys, keys])
        self.values = torch.cat([self.values, values])


def _resized(storage: torch.Tensor, capacity: int, used: int) -> torch.Tensor:
    batch, heads, _, width = storage.shape
    resized = storage.new_zeros(batch, heads, capacity, width)
    resized[:, :, :used] = storage[:, :, :used]
    return resized


class KVCache(Cache):  # type: ignore[misc]
    """Committed tokens of a batch, each row with its own length.

    A pass writes its nodes behind the committed slots of each row; they stay *pending* until
    ``commit`` keeps the accepted path and drops the rest::

        slots of a row:  [0 .. length)            committed
                         [length .. length + n)   pending: the n nodes of the running pass
                         [length + n .. capacity) free

    A tree can grow level by level: a pass that keeps the pending nodes writes its own behind them,
    and ``commit`` then counts all of them, in the order in which they were written.

    Keys carry their position already, so moving an accepted node to its final slot is a plain copy.

    Args:
        num_layers: Number of attention layers of the model.
        batch_size: Number of rows.
        capacity: Slots reserved for each row; grows by doubling when a pass needs more.

    Attributes:
        slot_multiple: A pass reads a multiple of this many slots, the surplus masked. Sums over
            slots are grouped by the kernels; with a multiple of their width, a row's groups no
            longer depend on how long the text is, and its bits do not change with it.
    """

    def __init__(self, num_layers: int, batch_size: int, capacity: int = 512) -> None:
        self.capacity = capacity
        self.slot_multiple = 1
        self._lengths = [0] * batch_size
        self._pending = 0
        self._slots: torch.Tensor | None = None
        # Where the nodes of the running pass lie, asked for twice in every layer.
        self._written, self._read = slice(0), slice(0)
        super().__init__(layers=[_Layer(self) for _ in range(num_layers)])

    @property
    def batch_size(self) -> int:
        """Number of rows."""
        return len(self._lengths)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Committed tokens of each row."""
        return tuple(self._lengths)

    @property
    def max_length(self) -> int:
        """Committed tokens of the longest row."""
        return max(self._lengths, default=0)

    @property
    def num_pending(self) -> int:
        """Nodes of each row that are written, not committed: kept ones and those of the pass."""
        return self._pending

    @property
    def num_slots(self) -> int:
        """Slots of each row that the running pass reads, masked ones included."""
        used = self.max_length + self._pending
        return -(-used // self.slot_multiple) * self.slot_multiple

    def begin_pass(self, num_nodes: int, kept: int = 0) -> None:
        """Reserves the slots of the next pass.

        Args:
            num_nodes: Nodes that every row of the pass writes, padding included.
            kept: Pending nodes that stay, with the new ones behind them: all of them, to grow a
                tree by a level, or 0 to drop those of an abandoned pass.

        Raises:
            ValueError: Only some of the pending nodes would stay.
        """
        if kept not in (0, self._pending):
            raise ValueError(f"a pass cannot keep {kept} of {self._pending} pending nodes")
        used = self.max_length + kept
        self._pending = kept + num_nodes
        self._reserve(self.num_slots, used)
        self._written = slice(used, self.max_length + self._pending)
        self._read = slice(self.num_slots)
        self._slots = None
        if len(set(self._lengths)) > 1:
            starts = torch.tensor(self._lengths).unsqueeze(1)
            self._slots = starts + torch.arange(kept, self._pending)

    def write(self, storage: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Writes the states of the running pass and returns all slots that it may attend to.

        Args:
            storage: ``[batch, heads, capacity, head_dim]``.
            states: ``[batch, heads, nodes, head_dim]``.

        Returns:
            A view ``[batch, heads, num_slots, head_dim]``.
        """
        if self._slots is None:
            storage[:, :, self._written] = states
        else:
            if self._slots.device != storage.device:
                self._slots = self._slots.to(storage.device)  # once a pass, not once a layer
            rows = torch.arange(self.batch_size, device=storage.device).unsqueeze(1)
            storage[rows, :, self._slots] = states.transpose(1, 2)
        return storage[:, :, self._read]

    @torch.inference_mode()
    def commit(self, paths: Sequence[Sequence[int]]) -> None:
        """Keeps the accepted nodes of the running pass and drops the others.

        Args:
            paths: For each row the accepted nodes, root first, each a descendant of the one
                before; empty keeps nothing. Node 0 is the first pending one, kept or not.

        Raises:
            ValueError: A path for another number of rows, or a node that the pass did not have.
        """
        if len(paths) != self.batch_size:
            raise ValueError(f"commit got {len(paths)} paths for {self.batch_size} rows")
        for path in paths:
            self._check_path(path)  # all of them first: a refused commit changes nothing
        for row, path in enumerate(paths):
            self._gather(row, path)
            self._lengths[row] += len(path)
        self._pending = 0

    def rollback(self, lengths: Sequence[int]) -> None:
        """Drops committed tokens from the end, and all pending nodes.

        Args:
            lengths: For each row the number of tokens to keep.

        Raises:
            ValueError: A row would grow, or a length is negative.
        """
        if len(lengths) != self.batch_size:
            raise ValueError(f"rollback got {len(lengths)} lengths for {self.batch_size} rows")
        for length, committed in zip(lengths, self._lengths, strict=True):
            if not 0 <= length <= committed:
                raise ValueError(f"cannot roll back to {length}: the row holds {committed} tokens")
        self._lengths = list(lengths)
        self._pending = 0

    @torch.inference_mode()
    def select_rows(self, rows: Sequence[int]) -> None:
        """Keeps only the named rows, in that order, and drops all pending nodes.

        Args:
            rows: Indices of the rows to keep. A row named twice becomes two, each with a copy of
                its own: several answers to one prompt share a prefill.
        """
        index = torch.tensor(list(rows), dtype=torch.long)
        for layer in self.layers:
            if layer.is_initialized:
                layer.keys = layer.keys.index_select(0, index.to(layer.keys.device))
                layer.values = layer.values.index_select(0, index.to(layer.values.device))
        self._lengths = [self._lengths[row] for row in rows]
        self._pending = 0

    @torch.inference_mode()
    def join(self, other: KVCache) -> None:
        """Appends the rows of another cache of the same model, as copies.

        Args:
            other: Holds rows that were prefilled apart; stays as it is.

        Raises:
            ValueError: Nodes are pending on either side, or the caches are of different models.
        """
        if self._pending or other.num_pending:
            raise ValueError(
                f"cannot join with {self._pending} and {other.num_pending} nodes pending; "
                "commit or roll back first"
            )
        if len(other.layers) != len(self.layers) or not all(map(_alike, self.layers, other.layers)):
            raise ValueError("cannot join the caches of different models: their layers differ")
        self._reserve(other.max_length, self.max_length)
        for ours, theirs in zip(self.layers, other.layers, strict=True):
            ours.join(theirs, other.max_length)
        self._lengths += other.lengths

    @torch.inference_mode()
    def export_row(self, row: int, length: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Copies the first tokens of a row, to give them to another row or to keep them.

        Args:
            row: Index of the row.
            length: Number of committed tokens to copy.

        Returns:
            Keys and values ``[heads, length, head_dim]`` of each layer, which may differ in heads
            and width; a layer that stores nothing of its own has no heads.

        Raises:
            ValueError: The row is not there, or holds fewer tokens.
        """
        self._check_row(row)
        if not 0 <= length <= self._lengths[row]:
            raise ValueError(f"cannot export {length} tokens: row {row} holds {self._lengths[row]}")
        nothing = torch.zeros(0, length, 0)
        return [
            (layer.keys[row, :, :length].clone(), layer.values[row, :, :length].clone())
            if layer.is_initialized
            else (nothing, nothing)
            for layer in self.layers
        ]

    @torch.inference_mode()
    def import_row(self, row: int, states: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Fills an empty row with exported tokens, which become its committed ones.

        Args:
            row: Index of the row.
            states: What ``export_row`` of a cache of the same model returned,
                ``[heads, length, head_dim]`` keys and values of each layer.

        Raises:
            ValueError: The row is not there or not empty, nodes are pending, or the states are
                those of another model.
        """
        self._check_row(row)
        if self._pending or self._lengths[row]:
            raise ValueError(
                f"cannot import into row {row}: it holds {self._lengths[row]} tokens, "
                f"{self._pending} nodes are pending"
            )
        lengths = {tensor.shape[1] for pair in states for tensor in pair}
        fits = len(states) == len(self.layers) and all(map(_takes, self.layers, states))
        if not fits or len(lengths) != 1:
            raise ValueError("cannot import the states of another model: its layers differ")
        length = lengths.pop()
        self._reserve(length, self.max_length)
        for layer, (keys, values) in zip(self.layers, states, strict=True):
            if not keys.shape[0]:
                continue
            if not layer.is_initialized:
                layer.lazy_initialization(keys, values)
            layer.keys[row, :, :length] = keys
            layer.values[row, :, :length] = values
        self._lengths[row] = length

    def check_integrity(self) -> None:
        """Asserts what holds between passes: sizes agree, nothing pending, all values finite.

        Raises:
            AssertionError: The cache is damaged; the message says where.
        """
        assert self._pending == 0, f"{self._pending} nodes are still pending"
        assert all(0 <= n <= self.capacity for n in self._lengths), (
            f"lengths {self._lengths} exceed the capacity {self.capacity}"
        )
        for number, layer in enumerate(self.layers):
            if not layer.is_initialized:
                continue
            for storage in _stores(layer):
                assert storage.shape[0] == self.batch_size, f"layer {number} has lost rows"
                assert storage.shape[2] == self.capacity, f"layer {number} has another capacity"
                for row, length in enumerate(self._lengths):
                    finite = bool(storage[row, :, :length].isfinite().all())
                    assert finite, f"layer {number} row {row} holds values that are not finite"

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Committed tokens of the longest row; transformers asks for it by this name."""
        return self.max_length

    @torch.inference_mode()
    def _reserve(self, slots: int, used: int) -> None:
        if slots <= self.capacity:
            return
        self.capacity = max(slots, 2 * self.capacity)
        for layer in self.layers:
            layer.resize(self.capacity, used)

    def _check_row(self, row: int) -> None:
        if not 0 <= row < self.batch_size:
            raise ValueError(f"there is no row {row}: the cache has {self.batch_size}")

    def _check_path(self, path: Sequence[int]) -> None:
        increasing = all(a < b for a, b in zip(path, path[1:], strict=False))
        if path and (not increasing or path[0] < 0 or path[-1] >= self._pending):
            raise ValueError(f"path {list(path)} is not a path in a pass of {self._pending} nodes")

    def _gather(self, row: int, path: Sequence[int]) -> None:
        kept = list(path)
        if kept == list(range(len(kept))):
            return  # already in place: a chain accepted from its start
        start = self._lengths[row]
        for layer in self.layers:
            for storage in _stores(layer):
                source = torch.tensor(kept, device=storage.device) + start
                # Indexing copies before the write, so overlapping slots are safe.
                storage[row, :, start : start + len(kept)] = storage[row, :, source]


def _stores(layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return layer.keys, layer.values


def _alike(ours: Any, theirs: Any) -> bool:
    """Whether two layers have the same heads and widths, as far as they are in use."""
    if not (ours.is_initialized and theirs.is_initialized):
        return True
    pairs = zip(_stores(ours), _stores(theirs), strict=True)
    return all(a.shape[1] == b.shape[1] and a.shape[3] == b.shape[3] for a, b in pairs)


def _takes(layer: Any, states: tuple[torch.Tensor, torch.Tensor]) -> bool:
    """Whether exported states have the heads and widths of a layer."""
    if not layer.is_initialized or not states[0].shape[0]:
        return True
    pairs = zip(_stores(layer), states, strict=True)
    return all(a.shape[1] == b.shape[0] and a.shape[3] == b.shape[2] for a, b in pairs)
