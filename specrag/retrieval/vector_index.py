"""Exact nearest-neighbour search over vectors with FAISS; knows ids, no texts."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import numpy as np
import numpy.typing as npt

from specrag.errors import IndexFormatError, InputError

# Exact search with ids of our own that can be removed later; needs no training.
_FACTORY = "IDMap2,Flat"
MISSING_ID = -1


class VectorHits(NamedTuple):
    """What a search found, best first.

    Attributes:
        scores: Inner products, [num_queries, k].
        ids: Ids of the vectors, [num_queries, k]; ``MISSING_ID`` where fewer than k exist.
    """

    scores: npt.NDArray[np.float32]
    ids: npt.NDArray[np.int64]


class VectorIndex:
    """Maps ids to vectors and finds the ids with the largest inner product.

    ``search`` may be called from several threads, but not while ``add`` runs.
    Made by ``create`` or ``load``.
    """

    def __init__(self, index: Any) -> None:
        self._index = index
        self._lock = threading.Lock()
        self._num_searches = 0

    @classmethod
    def create(cls, dimension: int) -> VectorIndex:
        """Makes an empty index.

        Args:
            dimension: Length of the vectors.

        Raises:
            InputError: The dimension is not positive.
        """
        if dimension < 1:
            raise InputError(f"the dimension of an index must be at least 1, got {dimension}")
        return cls(faiss.index_factory(dimension, _FACTORY, faiss.METRIC_INNER_PRODUCT))

    @classmethod
    def load(cls, path: Path) -> VectorIndex:
        """Reads an index from a file.

        FAISS does not notice altered bytes inside the vectors: compare a checksum first.

        Args:
            path: A file written by ``save``.

        Raises:
            IndexFormatError: The file is missing, damaged or holds another kind of index.
        """
        try:
            index = faiss.read_index(str(path))
        except (RuntimeError, AssertionError, MemoryError) as error:
            raise IndexFormatError(f"cannot read the vectors in {str(path)!r}: {error}") from error
        if not _is_expected_kind(index):
            raise IndexFormatError(
                f"{str(path)!r} holds a {type(index).__name__}, "
                f"not an index of kind {_FACTORY!r} with inner product"
            )
        return cls(index)

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def dimension(self) -> int:
        """Length of the vectors."""
        return int(self._index.d)

    @property
    def num_searches(self) -> int:
        """Calls of ``search`` so far."""
        return self._num_searches

    def add(self, ids: npt.NDArray[np.int64], vectors: npt.NDArray[np.float32]) -> None:
        """Adds vectors.

        Args:
            ids: Their ids, at least 0 and new to the index, [n].
            vectors: The vectors, [n, dimension], float32.

        Raises:
            InputError: Shape, type or ids do not fit; nothing has been added then.
        """
        self._check_vectors(vectors)
        if ids.shape != (len(vectors),) or ids.dtype != np.int64:
            raise InputError(
                f"ids must be int64 of shape [{len(vectors)}], one a vector, "
                f"got {ids.dtype} of shape {list(ids.shape)}"
            )
        known = faiss.vector_to_array(self._index.id_map)
        if ids.size and ids.min() < 0:
            raise InputError(f"ids must be at least 0, got {ids.min()}")
        if len(np.unique(ids)) != len(ids) or np.isin(ids, known).any():
            raise InputError("ids must be new to the index and differ from each other")
        self._index.add_with_ids(np.ascontiguousarray(vectors), ids)

    def search(self, queries: npt.NDArray[np.float32], k: int) -> VectorHits:
        """Finds the k vectors with the largest inner product to each query.

        Args:
            queries: The queries, [num_queries, dimension], float32.
            k: How many to find, at least 1; may exceed the size of the index.

        Raises:
            InputError: Shape, type or k do not fit.
        """
        self._check_vectors(queries)
        if k < 1:
            raise InputError(f"k must be at least 1, got {k}")
        with self._lock:
            self._num_searches += 1
        scores, ids = self._index.search(np.ascontiguousarray(queries), k)
        return VectorHits(scores, ids)

    def save(self, path: Path) -> None:
        """Writes the index to a file, replacing it.

        Args:
            path: Where to write.

        Raises:
            IndexFormatError: The file cannot be written.
        """
        try:
            faiss.write_index(self._index, str(path))
        except RuntimeError as error:
            raise IndexFormatError(
                f"cannot write the vectors to {str(path)!r}: {error}",
                hint="check that the folder exists and that the disk has room",
            ) from error

    def _check_vectors(self, vectors: npt.NDArray[np.float32]) -> None:
        if vectors.ndim != 2 or vectors.shape[1] != self.dimension or vectors.dtype != np.float32:
            raise InputError(
                f"vectors must be float32 of shape [n, {self.dimension}], "
                f"got {vectors.dtype} of shape {list(vectors.shape)}"
            )


def _is_expected_kind(index: Any) -> bool:
    if not isinstance(index, faiss.IndexIDMap2):
        return False
    flat = faiss.downcast_index(index.index)
    metrics = {index.metric_type, flat.metric_type}
    sizes = {index.ntotal, flat.ntotal, index.id_map.size()}
    return (
        isinstance(flat, faiss.IndexFlat)
        and metrics == {faiss.METRIC_INNER_PRODUCT}
        and (len(sizes) == 1 and index.d == flat.d)
    )
