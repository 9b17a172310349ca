"""What a FAISS index is made of, and how it is told what to look for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import faiss

# Training points a centroid; FAISS warns below it.
LEAST_PER_CENTROID = 39
OPQ_BITS = 8  # of the codes that a rotation is learned for, where the index itself has none

_FAISS: Any = faiss  # its type stubs lack parameters, and older versions have no stubs
Family = Literal["flat", "hnsw", "ivf", "codes"]


@dataclass(frozen=True, slots=True)
class VectorKind:
    """Properties of an index.

    Attributes:
        family: How it searches: all vectors, a graph, inverted lists, all codes.
        transformed: Whether vectors are rotated or shortened first.
        lossless: Whether it keeps the vectors themselves.
        selects: Whether it can be told which rows it may find.
        num_lists: Of an inverted file, else 0.
        num_centroids: The largest number of means that it learns at once, 0 for none.
        least_vectors: Below this it cannot be trained well; 0 where it needs no training.
    """

    family: Family
    transformed: bool
    lossless: bool
    selects: bool
    num_lists: int
    num_centroids: int
    least_vectors: int

    @property
    def exact(self) -> bool:
        """Whether a search compares every vector itself."""
        return self.family == "flat" and self.lossless

    def parameters(self, *, selector: Any, nprobe: int, ef_search: int) -> Any:
        """Returns what FAISS takes for one search.

        Args:
            selector: Of rows, None for all.
            nprobe: Lists to look into, for an inverted file.
            ef_search: Candidates to keep, for a graph.
        """
        chosen: dict[str, Any] = {} if selector is None else {"sel": selector}
        if self.family == "ivf":
            made = _FAISS.SearchParametersIVF(nprobe=nprobe, **chosen)
        elif self.family == "hnsw":
            made = _FAISS.SearchParametersHNSW(efSearch=ef_search, **chosen)
        elif chosen:
            made = _FAISS.SearchParameters(**chosen)
        else:
            return None
        return _FAISS.SearchParametersPreTransform(index_params=made) if self.transformed else made


def kind_of(index: Any) -> VectorKind | None:
    """Returns what an index is, None for one that this package does not use.

    Args:
        index: Any FAISS index.
    """
    if not isinstance(index, faiss.IndexIDMap2):
        return None
    inner, base = inner_index(index), base_index(index)
    parts = (index, inner, base)
    family = _family(base)
    if family == "ivf" and not base.nlist:
        return None  # FAISS makes an inverted file without lists, but searches none
    fits = all(
        part.metric_type == faiss.METRIC_INNER_PRODUCT and part.ntotal == index.ntotal
        for part in parts
    )
    if family is None or not fits or index.id_map.size() != index.ntotal or inner.d != index.d:
        return None
    transformed = isinstance(inner, faiss.IndexPreTransform)
    centroids = max(_centroids(inner, base), default=0)
    return VectorKind(
        family=family,
        transformed=transformed,
        lossless=not transformed and type(base) in _LOSSLESS,
        selects=not isinstance(base, faiss.IndexPQ | faiss.IndexFastScan | faiss.IndexIVFFastScan),
        num_lists=int(base.nlist) if family == "ivf" else 0,
        num_centroids=centroids,
        least_vectors=0 if index.is_trained else max(centroids * LEAST_PER_CENTROID, inner.d),
    )


def inner_index(index: Any) -> Any:
    """Returns the index that numbers its vectors from 0.

    Args:
        index: The index with ids around it.
    """
    return faiss.downcast_index(index.index)


def base_index(index: Any) -> Any:
    """Returns the index behind ids and transforms.

    Args:
        index: The index with ids around it.
    """
    inner = inner_index(index)
    transformed = isinstance(inner, faiss.IndexPreTransform)
    return faiss.downcast_index(inner.index) if transformed else inner


_LOSSLESS = (faiss.IndexFlat, faiss.IndexFlatIP, faiss.IndexHNSWFlat, faiss.IndexIVFFlat)
_FAMILIES: tuple[tuple[type, Family], ...] = (
    (faiss.IndexFlat, "flat"),
    (faiss.IndexHNSWFlat, "hnsw"),
    (faiss.IndexHNSWSQ, "hnsw"),
    (faiss.IndexIVFFlat, "ivf"),
    (faiss.IndexIVFScalarQuantizer, "ivf"),
    (faiss.IndexIVFPQ, "ivf"),
    (faiss.IndexIVFPQFastScan, "ivf"),
    (faiss.IndexScalarQuantizer, "codes"),
    (faiss.IndexPQ, "codes"),
    (faiss.IndexPQFastScan, "codes"),
)


def _family(base: Any) -> Family | None:
    # The class itself: a subclass may store or search in another way.
    if type(base) is faiss.IndexFlatIP:
        return "flat"
    return next((family for known, family in _FAMILIES if type(base) is known), None)


def _centroids(inner: Any, base: Any) -> Iterator[int]:
    if isinstance(base, faiss.IndexIVF):
        yield int(base.nlist)
    storage = faiss.downcast_index(base.storage) if isinstance(base, faiss.IndexHNSW) else base
    if hasattr(storage, "pq"):
        yield int(storage.pq.ksub)
    elif rotation_of(inner) is not None:
        yield 2**OPQ_BITS


def rotation_of(inner: Any) -> Any | None:
    """Returns the rotation that is learned for a product quantizer, None where there is none.

    Args:
        inner: The index that numbers its vectors from 0.
    """
    rotated = isinstance(inner, faiss.IndexPreTransform)
    first = _transform(inner) if rotated else None
    return first if isinstance(first, faiss.OPQMatrix) else None


def _transform(inner: Any) -> Any:
    return faiss.downcast_VectorTransform(inner.chain.at(0))
