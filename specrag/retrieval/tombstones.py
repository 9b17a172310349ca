"""Which documents of a segment are gone: a segment itself never changes.

As in Lucene, a deletion is a mark beside the segment, and compaction leaves the marked parts out.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from specrag.errors import IndexFormatError

Numbers = npt.NDArray[np.int64]


class Tombstone(NamedTuple):
    """A document that is gone.

    Attributes:
        document: Its number in the segment.
        first_passage: Id of its first passage.
        num_passages: How many it has; their ids are consecutive.
    """

    document: int
    first_passage: int
    num_passages: int


class Tombstones:
    """The documents of one segment that are gone; never changed, only replaced by a larger set.

    Args:
        rows: One row a document, sorted by number, [num_documents, 3]: as ``Tombstone`` has them.
    """

    def __init__(self, rows: Numbers | None = None) -> None:
        self._rows = np.empty((0, 3), dtype=np.int64) if rows is None else rows
        self.documents: frozenset[int] = frozenset(self._rows[:, 0].tolist())

    @classmethod
    def load(cls, path: Path) -> Tombstones:
        """Reads a file written by ``save``.

        Args:
            path: The file.

        Raises:
            IndexFormatError: It is missing, damaged or something else.
        """
        try:
            rows = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise IndexFormatError(f"cannot read the deletions {str(path)!r}: {error}") from error
        if rows.dtype != np.int64 or rows.ndim != 2 or rows.shape[1] != 3:
            raise IndexFormatError(f"{str(path)!r} holds no deletions: {rows.dtype}, {rows.shape}")
        return cls(rows)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def num_passages(self) -> int:
        """Passages that are gone."""
        return int(self._rows[:, 2].sum())

    def passages(self) -> Numbers:
        """Returns the ids of the passages that are gone, sorted, [num_passages]."""
        starts, counts = self._rows[:, 1], self._rows[:, 2]
        before = np.cumsum(counts) - counts
        ids = np.arange(counts.sum()) - np.repeat(before - starts, counts)
        return np.sort(ids)

    def with_more(self, gone: Iterable[Tombstone]) -> Tombstones:
        """Returns these and more; documents that are gone already stay so.

        Args:
            gone: Documents of the same segment.
        """
        added = [row for row in gone if row.document not in self.documents]
        if not added:
            return self
        rows = np.concatenate([self._rows, np.array(added, dtype=np.int64).reshape(-1, 3)])
        return Tombstones(np.unique(rows, axis=0))

    def save(self, path: Path) -> None:
        """Writes the set to a new file.

        Args:
            path: Where to write.
        """
        np.save(path, self._rows, allow_pickle=False)
