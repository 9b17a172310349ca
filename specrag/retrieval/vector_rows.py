"""Which row of an index holds which id, and which rows a search may find."""

from __future__ import annotations

import threading
import weakref
from functools import cached_property
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]


class VectorRows:
    """The ids of an index, by row.

    Args:
        ids: They differ from each other, [n].
    """

    def __init__(self, ids: Ids) -> None:
        self.ids = ids
        ascending = bool(np.all(ids[1:] > ids[:-1]))
        self._order = None if ascending else np.argsort(ids)
        self._sorted = ids if self._order is None else ids[self._order]

    def __len__(self) -> int:
        return len(self.ids)

    def rows_of(self, ids: Ids) -> Ids:
        """Returns the rows that hold some ids, -1 for ids that no row holds.

        Args:
            ids: In any order, [n].
        """
        if not len(self):
            return np.full(len(ids), -1, dtype=np.int64)
        places = np.minimum(np.searchsorted(self._sorted, ids), len(self) - 1)
        rows = places if self._order is None else self._order[places]
        return np.where(self._sorted[places] == ids, rows, -1).astype(np.int64, copy=False)


class SelectedRows:
    """The rows that a search may find.

    Args:
        mask: Whether each row may be found, [n].
    """

    def __init__(self, mask: npt.NDArray[np.bool_]) -> None:
        self.mask = mask
        self._num_rows = int(np.count_nonzero(mask))

    def __len__(self) -> int:
        return self._num_rows

    @cached_property
    def rows(self) -> Ids:
        """The rows that may be found, in order."""
        return np.flatnonzero(self.mask)

    @cached_property
    def selector(self) -> Any:
        """What FAISS asks about each row."""
        return faiss.IDSelectorBitmap(len(self.mask), faiss.swig_ptr(self._bits))

    @cached_property
    def _bits(self) -> npt.NDArray[np.uint8]:
        # FAISS reads the bits where they lie, so they live as long as the selector.
        return np.packbits(self.mask, bitorder="little")


class Selection:
    """Which vectors a search may find, by id; prepared once, used for many searches.

    A selection may be used with several indexes and from several threads; ids that an index does
    not hold mean nothing to it.

    Args:
        allowed: The only ids that may be found; None allows all.
        excluded: Ids that may not be found even so; None for none.
    """

    def __init__(self, allowed: Ids | None = None, excluded: Ids | None = None) -> None:
        self.allowed = allowed
        self.excluded = excluded
        self._prepared: weakref.WeakKeyDictionary[VectorRows, SelectedRows] = (
            weakref.WeakKeyDictionary()
        )
        self._lock = threading.Lock()

    def rows_in(self, rows: VectorRows) -> SelectedRows:
        """Returns the rows of an index that may be found.

        Args:
            rows: Of the index.
        """
        with self._lock:
            found = self._prepared.get(rows)
            if found is None:
                found = self._prepared[rows] = SelectedRows(self._mask(rows))
        return found

    def _mask(self, rows: VectorRows) -> npt.NDArray[np.bool_]:
        mask = np.full(len(rows), self.allowed is None)
        for ids, value in ((self.allowed, True), (self.excluded, False)):
            if ids is not None:
                held = rows.rows_of(np.asarray(ids, dtype=np.int64))
                mask[held[held >= 0]] = value
        return mask
