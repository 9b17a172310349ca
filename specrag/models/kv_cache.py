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
        batch, heads, _, width = like.shape
        # Zeros, not empty: masked slots still enter the attention product, and 0 * NaN is NaN.
        return like.new_zeros(batch, heads, self._owner.capacity, width)

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
        return self._owner.max_length + query_length, 0

    def get_seq_length(self) -> int:
        return self._owner.max_length

    def get_max_length(self) -> int:
        return -1

    def resize(self, capacity: int, used: int) -> None:
        if self.is_initialized:
            self.keys = _grown(self.keys, capacity, used)
            self.values = _grown(self.values, capacity, used)


def _grown(storage: torch.Tensor, capacity: int, used: int) -> torch.Tensor:
    batch, heads, _, width = storage.shape
    grown = storage.new_zeros(batch, heads, capacity, width)
    grown[:, :, :used] = storage[:, :, :used]
    return grown


class KVCache(Cache):  # type: ignore[misc]
    """Committed tokens of a batch, each row with its own length.

    A pass writes its nodes behind the committed slots of each row; they stay *pending* until
    ``commit`` keeps the accepted path and drops the rest::

        slots of a row:  [0 .. length)            committed
                         [length .. length + n)   pending: the n nodes of the running pass
                         [length + n .. capacity) free

    Keys carry their position already, so moving an accepted node to its final slot is a plain copy.

    Args:
        num_layers: Number of attention layers of the model.
        batch_size: Number of rows.
        capacity: Slots reserved for each row; grows by doubling when a pass needs more.
    """

    def __init__(self, num_layers: int, batch_size: int, capacity: int = 512) -> None:
        self.capacity = capacity
        self._lengths = [0] * batch_size
        self._pending = 0
        self._slots: torch.Tensor | None = None
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
        """Nodes of the running pass: written, not committed."""
        return self._pending

    def begin_pass(self, num_nodes: int) -> None:
        """Reserves the slots of the next pass; pending nodes of an abandoned pass are dropped.

        Args:
            num_nodes: Nodes that every row of the pass writes, padding included.
        """
        self._reserve(self.max_length + num_nodes)
        self._pending = num_nodes
        self._slots = None
        if len(set(self._lengths)) > 1:
            starts = torch.tensor(self._lengths).unsqueeze(1)
            self._slots = starts + torch.arange(num_nodes)

    def write(self, storage: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Writes the states of the running pass and returns all slots that it may attend to.

        Args:
            storage: ``[batch, heads, capacity, head_dim]``.
            states: ``[batch, heads, nodes, head_dim]``.

        Returns:
            A view ``[batch, heads, max_length + nodes, head_dim]``.
        """
        end = self.max_length + self._pending
        if self._slots is None:
            storage[:, :, self.max_length : end] = states
        else:
            rows = torch.arange(self.batch_size).unsqueeze(1)
            storage[rows, :, self._slots] = states.transpose(1, 2)
        return storage[:, :, :end]

    @torch.inference_mode()
    def commit(self, paths: Sequence[Sequence[int]]) -> None:
        """Keeps the accepted nodes of the running pass and drops the others.

        Args:
            paths: For each row the accepted nodes, root first, each a descendant of the one
                before; empty keeps nothing.

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
        """Keeps only the named rows, in that order.

        Args:
            rows: Indices of the rows to keep.
        """
        index = torch.tensor(list(rows), dtype=torch.long)
        for layer in self.layers:
            if layer.is_initialized:
                layer.keys = layer.keys.index_select(0, index.to(layer.keys.device))
                layer.values = layer.values.index_select(0, index.to(layer.values.device))
        self._lengths = [self._lengths[row] for row in rows]
        self._pending = 0

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
            for storage in (layer.keys, layer.values):
                assert storage.shape[0] == self.batch_size, f"layer {number} has lost rows"
                assert storage.shape[2] == self.capacity, f"layer {number} has another capacity"
                for row, length in enumerate(self._lengths):
                    finite = bool(storage[row, :, :length].isfinite().all())
                    assert finite, f"layer {number} row {row} holds values that are not finite"

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Committed tokens of the longest row; transformers asks for it by this name."""
        return self.max_length

    @torch.inference_mode()
    def _reserve(self, slots: int) -> None:
        if slots <= self.capacity:
            return
        self.capacity = max(slots, 2 * self.capacity)
        for layer in self.layers:
            layer.resize(self.capacity, self.max_length)

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
            for storage in (layer.keys, layer.values):
                source = torch.tensor(kept, device=storage.device) + start
                # Indexing copies before the write, so overlapping slots are safe.
                storage[row, :, start : start + len(kept)] = storage[row, :, source]
