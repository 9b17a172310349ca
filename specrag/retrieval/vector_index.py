"""Nearest-neighbour search over vectors with FAISS; knows ids, no texts."""

from __future__ import annotations

import copy
import threading
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from specrag.errors import IndexFormatError, InputError
from specrag.retrieval.exact_vectors import (
    ExactVectors,
    KeptVectors,
    ListedVectors,
    Vectors,
    ViewedVectors,
)
from specrag.retrieval.vector_factory import FLAT, VectorSettings, factory_for, make_index
from specrag.retrieval.vector_kind import VectorKind, base_index, inner_index, kind_of
from specrag.retrieval.vector_rows import Ids, Selection, VectorRows
from specrag.retrieval.vector_search import Searched, search
from specrag.retrieval.vector_training import train

MISSING_ID = -1
FILE_NAME = "vectors.faiss"
_EXACT_SUFFIX = ".exact.npy"
_BLOCK = 16384  # vectors added between two steps of the progress bar
# The reading of files without copying them; FAISS before 1.11 cannot.
_MAPPED = getattr(faiss, "IO_FLAG_MMAP_IFC", 0)


class VectorHits(NamedTuple):
    """What a search found, best first; equal scores in the order of ids.

    Attributes:
        scores: Inner products, [num_queries, k]; minus infinity where fewer than k exist.
        ids: Ids of the vectors, [num_queries, k]; ``MISSING_ID`` where fewer than k exist.
    """

    scores: npt.NDArray[np.float32]
    ids: npt.NDArray[np.int64]


class VectorIndex:
    """Maps ids to vectors and finds the ids with the largest inner product.

    Of vectors of length 1 that is the cosine. Scores are exact in every kind of index: what is
    found by compressed vectors is compared once more by the vectors themselves. ``search`` may be
    called from several threads, but not while ``add`` runs. Once saved, an index does not change.
    Made by ``build``, ``create`` or ``load``.
    """

    def __init__(
        self, index: Any, kind: VectorKind, vectors: ExactVectors, settings: VectorSettings
    ) -> None:
        self._index = index
        self._kind = kind
        self._vectors = vectors
        self._settings = settings
        self._rows = VectorRows(faiss.vector_to_array(index.id_map))
        self._final = False
        self._lock = threading.Lock()
        self._num_searches = 0

    @classmethod
    def create(
        cls, dimension: int, factory: str = FLAT, settings: VectorSettings | None = None
    ) -> VectorIndex:
        """Makes an empty index.

        Args:
            dimension: Length of the vectors.
            factory: A FAISS factory string. Vectors can only be added one part after the other
                where it needs no training; else see ``build``.
            settings: How to search; None for the defaults.

        Raises:
            InputError: The dimension is not positive.
            ConfigError: The factory cannot be made.
        """
        if dimension < 1:
            raise InputError(f"the dimension of an index must be at least 1, got {dimension}")
        index, kind = make_index(factory, dimension)
        nothing = np.empty((0, dimension), dtype=np.float32)
        vectors = _kept_inside(index, kind) or KeptVectors(nothing)
        return cls(index, kind, vectors, settings or VectorSettings())

    @classmethod
    def build(
        cls,
        ids: Ids,
        vectors: Vectors,
        settings: VectorSettings | None = None,
        *,
        progress: bool = False,
    ) -> VectorIndex:
        """Makes an index of all its vectors, training it where needed.

        Too few vectors to train on are kept uncompressed; ``check_enough`` of the module
        ``vector_factory`` refuses them.

        Args:
            ids: Their ids, at least 0 and different, [n].
            vectors: The vectors, [n, dimension], float32; not copied where the index compresses
                them, so they must not change before ``save``.
            settings: How they are kept and searched; None for the defaults.
            progress: Whether to show progress bars on standard error.

        Raises:
            InputError: Shape, type or ids do not fit.
            ConfigError: The factory cannot be made.
        """
        settings = settings or VectorSettings()
        if vectors.ndim != 2:
            raise InputError(f"vectors must be a matrix, got the shape {list(vectors.shape)}")
        factory = factory_for(settings, *vectors.shape)
        made = cls.create(vectors.shape[1], factory, settings)
        made._check_new(ids, vectors)
        train(made._index, made._kind, vectors, progress=progress)
        made._append(ids, vectors, progress=progress)
        return made

    @classmethod
    def load(
        cls, path: Path, settings: VectorSettings | None = None, *, mapped: bool = True
    ) -> VectorIndex:
        """Reads an index from a file.

        FAISS does not notice altered bytes inside the vectors: compare a checksum first.

        Args:
            path: A file written by ``save``, or the folder with it.
            settings: How to search; None for the defaults.
            mapped: Whether vectors stay in the file until they are compared, so that several
                processes share them; the file must not change then. Else all are read at once.

        Raises:
            IndexFormatError: A file is missing, damaged or holds another kind of index.
        """
        path = _file(path)
        try:
            index = faiss.read_index(str(path), _MAPPED if mapped else 0)
        except (RuntimeError, AssertionError, MemoryError) as error:
            raise IndexFormatError(f"cannot read the vectors in {str(path)!r}: {error}") from error
        kind = kind_of(index)
        if kind is None or not index.is_trained:
            raise IndexFormatError(
                f"{str(path)!r} holds a {type(index).__name__}, not an index with ids that are "
                f"known to specrag, such as {FLAT!r} with inner product"
            )
        vectors = _kept_inside(index, kind)
        if vectors is None:
            vectors = KeptVectors.load(_exact_file(path), int(index.ntotal), int(index.d))
        loaded = cls(index, kind, vectors, settings or VectorSettings())
        loaded._final = True
        return loaded

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def dimension(self) -> int:
        """Length of the vectors."""
        return int(self._index.d)

    @property
    def effort(self) -> str | None:
        """The setting that trades time for recall, None where every search is exact."""
        return {"ivf": "nprobe", "hnsw": "ef_search"}.get(self._kind.family)

    def searched_with(self, settings: VectorSettings) -> VectorIndex:
        """Returns the same vectors, searched in another way.

        Args:
            settings: How hard to look; the factory is not used.
        """
        other = copy.copy(self)
        other._settings = settings
        return other

    @property
    def num_searches(self) -> int:
        """Calls of ``search`` so far."""
        return self._num_searches

    @property
    def file_names(self) -> tuple[str, ...]:
        """Names of the files that ``save`` makes in a folder."""
        inside = not isinstance(self._vectors, KeptVectors)
        return (FILE_NAME,) if inside else (FILE_NAME, _exact_file(Path(FILE_NAME)).name)

    def add(self, ids: Ids, vectors: Vectors) -> None:
        """Adds vectors.

        Args:
            ids: Their ids, at least 0 and new to the index, [n].
            vectors: The vectors, [n, dimension], float32.

        Raises:
            InputError: Shape, type or ids do not fit, or the index takes no more vectors; nothing
                has been added then.
        """
        self._check_new(ids, vectors)
        if self._final:
            raise InputError(
                f"an index that was saved does not change, {len(ids)} vectors are left out",
                hint="build another index of them",
            )
        if not self._index.is_trained:
            raise InputError(
                f"the index must be trained before {len(ids)} vectors can be added",
                hint="use VectorIndex.build with all vectors",
            )
        kept = isinstance(self._vectors, KeptVectors)
        self._append(ids, vectors.copy() if kept else vectors, progress=False)

    def search(self, queries: Vectors, k: int, selection: Selection | None = None) -> VectorHits:
        """Finds the k vectors with the largest inner product to each query.

        Args:
            queries: The queries, [num_queries, dimension], float32.
            k: How many to find, at least 1; may exceed the size of the index.
            selection: Which vectors may be found; None for all.

        Raises:
            InputError: Shape, type or k do not fit.
        """
        self._check_vectors(queries)
        if k < 1:
            raise InputError(f"k must be at least 1, got {k}")
        with self._lock:
            self._num_searches += 1
        hits = VectorHits(
            np.full((len(queries), k), -np.inf, dtype=np.float32),
            np.full((len(queries), k), MISSING_ID, dtype=np.int64),
        )
        selected = None if selection is None else selection.rows_in(self._rows)
        if selected is not None and len(selected) == len(self):
            selected = None
        inner = inner_index(self._index)
        searched = Searched(inner, self._kind, self._vectors, self._rows, self._settings)
        for place, (scores, ids) in enumerate(search(searched, queries, k, selected)):
            hits.scores[place, : len(scores)] = scores
            hits.ids[place, : len(ids)] = ids
        return hits

    def prepare(self, selection: Selection) -> None:
        """Does for a selection what its first search would do.

        Args:
            selection: Which vectors may be found.
        """
        selection.rows_in(self._rows)

    def vectors_of(self, ids: Ids) -> Vectors:
        """Returns vectors exactly as they were added, [num_ids, dimension].

        Args:
            ids: Of the vectors, [num_ids].

        Raises:
            InputError: The index does not hold one of the ids.
        """
        rows = self._rows.rows_of(np.asarray(ids, dtype=np.int64))
        if (rows < 0).any():
            raise InputError(f"the index has no vector with the id {ids[np.argmin(rows)]}")
        return self._vectors.take(rows)

    def save(self, path: Path) -> None:
        """Writes the index, replacing what is there; it does not change any more then.

        Args:
            path: A folder, which gets ``file_names``; or a file, and what else is needed is
                written beside it.

        Raises:
            InputError: The index is not trained.
            IndexFormatError: A file cannot be written.
        """
        path = _file(path)
        if not self._index.is_trained:
            raise InputError(f"an index that is not trained cannot be saved to {str(path)!r}")
        try:
            faiss.write_index(self._index, str(path))
            if isinstance(self._vectors, KeptVectors):
                self._vectors.save(_exact_file(path))
        except (RuntimeError, OSError) as error:
            raise IndexFormatError(
                f"cannot write the vectors to {str(path)!r}: {error}",
                hint="check that the folder exists and that the disk has room",
            ) from error
        self._final = True

    def _append(self, ids: Ids, vectors: Vectors, *, progress: bool) -> None:
        with tqdm(total=len(ids), desc="adding vectors", disable=not progress) as bar:
            for first in range(0, len(ids), _BLOCK):
                block = slice(first, first + _BLOCK)
                self._index.add_with_ids(np.ascontiguousarray(vectors[block]), ids[block])
                bar.update(len(ids[block]))
        if isinstance(self._vectors, KeptVectors):
            self._vectors.append(vectors)
        self._rows = VectorRows(faiss.vector_to_array(self._index.id_map))

    def _check_new(self, ids: Ids, vectors: Vectors) -> None:
        self._check_vectors(vectors)
        if ids.shape != (len(vectors),) or ids.dtype != np.int64:
            raise InputError(
                f"ids must be int64 of shape [{len(vectors)}], one a vector, "
                f"got {ids.dtype} of shape {list(ids.shape)}"
            )
        if ids.size and ids.min() < 0:
            raise InputError(f"ids must be at least 0, got {ids.min()}")
        if len(np.unique(ids)) != len(ids) or (self._rows.rows_of(ids) >= 0).any():
            raise InputError("ids must be new to the index and differ from each other")

    def _check_vectors(self, vectors: Vectors) -> None:
        if vectors.ndim != 2 or vectors.shape[1] != self.dimension or vectors.dtype != np.float32:
            raise InputError(
                f"vectors must be float32 of shape [n, {self.dimension}], "
                f"got {vectors.dtype} of shape {list(vectors.shape)}"
            )


def _kept_inside(index: Any, kind: VectorKind) -> ExactVectors | None:
    """Returns how to read the vectors that an index keeps itself, None where it compresses them."""
    if not kind.lossless:
        return None
    base = base_index(index)
    if kind.family == "ivf":
        base.make_direct_map(True)
        return ListedVectors(base)
    flat: Any = base if kind.family == "flat" else faiss.downcast_index(base.storage)

    def view() -> Vectors:
        shape = int(flat.ntotal), int(flat.d)
        if not shape[0]:
            return np.empty(shape, dtype=np.float32)
        matrix: Vectors = faiss.rev_swig_ptr(flat.get_xb(), shape[0] * shape[1]).reshape(shape)
        return matrix

    return ViewedVectors(view)


def _file(path: Path) -> Path:
    return path / FILE_NAME if path.is_dir() else path


def _exact_file(path: Path) -> Path:
    return path.with_suffix(_EXACT_SUFFIX)
