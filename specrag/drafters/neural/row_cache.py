"""RowCache: a key/value cache of which only the rows that are asked for take part in a pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from specrag.models.kv_cache import KVCache

NewCache = Callable[[int], KVCache]
"""Makes an empty cache for a number of rows."""

_States = list[tuple[torch.Tensor, torch.Tensor]]


class RowCache:
    """Rows that are not asked for are moved out of the batch and cost nothing until they are.

    Args:
        new_cache: Makes the cache.

    Attributes:
        rows: The rows of the batch, in the order of the cache.
    """

    def __init__(self, new_cache: NewCache) -> None:
        self._new_cache = new_cache
        self._cache: KVCache | None = None
        self.rows: list[int] = []
        self._parked: dict[int, _States] = {}

    @property
    def batch(self) -> KVCache:
        """The cache of the rows that take part."""
        assert self._cache is not None, "arrange comes first"
        return self._cache

    def arrange(self, rows: Sequence[int]) -> None:
        """Makes these rows the batch: moves the others out, and these in, with what they held.

        Args:
            rows: In any order; new ones begin empty.
        """
        if self._cache is None:
            self._cache = self._new_cache(len(rows))
            self.rows = list(rows)
            self._fill(range(len(rows)))
        elif self.rows != rows and set(self.rows) != set(rows):
            self._bring_in([row for row in rows if row not in self.rows])
            self._move_out({row for row in self.rows if row not in rows})

    def reset(self) -> None:
        """Forgets everything."""
        self._cache = None
        self.rows = []
        self._parked = {}

    def lengths(self) -> dict[int, int]:
        """Returns how many tokens of each row are held, moved out or not.

        Raises:
            AssertionError: The cache is damaged.
        """
        found = {row: int(states[0][0].shape[1]) for row, states in self._parked.items()}
        if self._cache is not None:
            self._cache.check_integrity()
            found.update(zip(self.rows, self._cache.lengths, strict=True))
        return found

    def _bring_in(self, rows: Sequence[int]) -> None:
        if not rows:
            return
        present = len(self.rows)
        self.batch.rollback(self.batch.lengths)  # nothing is pending any more
        self.batch.join(self._new_cache(len(rows)))
        self.rows += rows
        self._fill(range(present, len(self.rows)))

    def _fill(self, slots: Sequence[int]) -> None:
        for slot in slots:
            row = self.rows[slot]
            if row in self._parked:
                self.batch.import_row(slot, self._parked.pop(row))

    def _move_out(self, rows: set[int]) -> None:
        if not rows:
            return
        lengths = self.batch.lengths
        for slot, row in enumerate(self.rows):
            if row in rows and lengths[slot]:
                self._parked[row] = self.batch.export_row(slot, lengths[slot])
        staying = [slot for slot, row in enumerate(self.rows) if row not in rows]
        self.batch.select_rows(staying)
        self.rows = [self.rows[slot] for slot in staying]
