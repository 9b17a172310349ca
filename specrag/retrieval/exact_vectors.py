"""The vectors of an index as they were given, for exact scores and for building again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from specrag.errors import IndexFormatError

Vectors = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
Ranking = tuple[Vectors, Rows]  # scores and ids, best first
_BLOCK = 16384  # vectors compared at a time


class ExactVectors(ABC):
    """Vectors by row; may be read from several threads."""

    @abstractmethod
    def take(self, rows: Rows) -> Vectors:
        """Returns a copy of some vectors, [num_rows, dimension].

        Args:
            rows: Of the index, [num_rows].
        """


class ViewedVectors(ExactVectors):
    """Vectors that FAISS keeps as one matrix.

    Args:
        view: Returns the matrix as it is now, [n, dimension]; adding moves it.
    """

    def __init__(self, view: Callable[[], Vectors]) -> None:
        self._view = view

    def take(self, rows: Rows) -> Vectors:
        """Copies them out of the matrix."""
        return self._view()[rows]


class ListedVectors(ExactVectors):
    """Vectors that FAISS keeps in inverted lists.

    Args:
        index: An inverted file with a map from rows to places.
    """

    def __init__(self, index: Any) -> None:
        self._index = index

    def take(self, rows: Rows) -> Vectors:
        """Lets FAISS find them."""
        found: Vectors = self._index.reconstruct_batch(np.ascontiguousarray(rows))
        return found


class KeptVectors(ExactVectors):
    """Vectors beside an index that compresses its own: in memory, or in a mapped file.

    Args:
        vectors: The first of them, [n, dimension].
    """

    def __init__(self, vectors: Vectors) -> None:
        self._blocks = [vectors]

    @classmethod
    def load(cls, path: Path, num_vectors: int, dimension: int) -> KeptVectors:
        """Maps a file written by ``save``; what is read of it stays with the system's cache.

        Args:
            path: The file.
            num_vectors: How many it must hold.
            dimension: Of the vectors.

        Raises:
            IndexFormatError: The file is missing, damaged, or holds something else.
        """
        try:
            # Nothing can be mapped of no vectors.
            vectors = np.load(path, mmap_mode="r" if num_vectors else None, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise IndexFormatError(
                f"cannot read the exact vectors in {str(path)!r}: {error}"
            ) from error
        if vectors.shape != (num_vectors, dimension) or vectors.dtype != np.float32:
            raise IndexFormatError(
                f"{str(path)!r} should hold float32 of shape [{num_vectors}, {dimension}], "
                f"found {vectors.dtype} of shape {list(vectors.shape)}"
            )
        return cls(vectors.view(np.ndarray))

    def append(self, vectors: Vectors) -> None:
        """Adds vectors behind the others.

        Args:
            vectors: Of the same length, [n, dimension].
        """
        self._blocks = [block for block in self._blocks if len(block)] + [vectors]

    def take(self, rows: Rows) -> Vectors:
        """Copies them out of memory or the file."""
        if len(self._blocks) > 1:
            self._blocks = [np.concatenate(self._blocks)]
        return np.asarray(self._blocks[0][rows])

    def save(self, path: Path) -> None:
        """Writes the vectors as a NumPy file.

        Args:
            path: Where to write; what is there is replaced.

        Raises:
            OSError: The file cannot be written.
        """
        num_vectors = sum(len(block) for block in self._blocks)
        header = {
            "descr": "<f4",
            "fortran_order": False,
            "shape": (num_vectors, self._blocks[0].shape[1]),
        }
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for block in self._blocks:
                for first in range(0, len(block), _BLOCK):
                    file.write(np.ascontiguousarray(block[first : first + _BLOCK], "<f4").data)


def inner_products(query: Vectors, vectors: Vectors) -> Vectors:
    """Returns the inner products of a query with some vectors, [n].

    Each is summed in the same order whatever stands beside it, unlike those of a matrix product:
    a passage has the same score in any segment.

    Args:
        query: [dimension].
        vectors: [n, dimension].
    """
    products: Vectors = np.einsum("nd,d->n", vectors, query)
    return products


def best_rows(query: Vectors, vectors: ExactVectors, rows: Rows, ids: Rows, k: int) -> Ranking:
    """Returns the best of some rows, compared one by one.

    Args:
        query: [dimension].
        vectors: Of the index.
        rows: To compare, [n].
        ids: Of those rows, [n]; equal scores are ordered by them.
        k: How many to return, at most.
    """
    best = np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int64)
    for first in range(0, len(rows), _BLOCK):
        block = slice(first, first + _BLOCK)
        scores = np.concatenate([best[0], inner_products(query, vectors.take(rows[block]))])
        names = np.concatenate([best[1], ids[block]])
        order = np.lexsort((names, -scores))[:k]
        best = scores[order], names[order]
    return best
