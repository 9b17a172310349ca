"""How vectors are kept: settings, the FAISS factory they mean, and what that factory needs."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import faiss

from specrag.errors import ConfigError, suggest
from specrag.retrieval.vector_kind import LEAST_PER_CENTROID, VectorKind, kind_of

FLAT = "IDMap2,Flat"
NAMES = ("auto", "flat", "hnsw", "ivf", "ivf-pq")
EXAMPLES = ("HNSW32", "IVF1024,Flat", "IVF1024,PQ48", "OPQ48,IVF1024,PQ48x4fs", "SQ8", "Flat")
# Up to here one core compares a query with every vector of 384 dimensions in about 20 ms, which is
# what encoding the query takes; measured by `specrag.evaluation.vector_search`. Above it, inverted
# lists build in less than half the time of a graph, find more, and cost less with a filter.
FLAT_MOST = 200_000
_GRAPH_LEAST = 1000  # below this, a graph saves nothing
_LISTS_LEAST = 16
_LISTS_MOST = 65536
_WHERE = re.compile(r"^Error in .* at \S+:\d+: (Error: )?")
_REASON_LETTERS = 200
_DIMENSIONS_PER_CODE = 4  # of a vector, in one byte of a product quantizer


@dataclass(frozen=True, slots=True)
class VectorSettings:
    """How vectors are kept and searched.

    Attributes:
        factory: One of ``NAMES`` or a FAISS factory string, such as ``IVF1024,PQ48``.
        nprobe: Lists of an inverted file that a search looks into; None for a default that grows
            with the number of lists.
        ef_search: Candidates that a search of a graph keeps; None for a default.
        rescore: Where vectors are compressed, a search compares ``rescore * k`` candidates
            exactly.
    """

    factory: str = "auto"
    nprobe: int | None = None
    ef_search: int | None = None
    rescore: int = 4

    def __post_init__(self) -> None:
        if not self.factory.strip():
            raise ConfigError(f"the factory of vectors is blank: {self.factory!r}", hint=_hint(""))
        for name in ("nprobe", "ef_search", "rescore"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}")


def factory_for(settings: VectorSettings, num_vectors: int, dimension: int) -> str:
    """Returns the FAISS factory string for a number of vectors.

    Too few vectors for what was asked are kept in ``FLAT``: it is exact, and as fast for few.

    Args:
        settings: Names the factory.
        num_vectors: How many vectors there are.
        dimension: Their length.

    Raises:
        ConfigError: FAISS or this package does not know the factory, or it does not fit the
            dimension.
    """
    wanted = _wanted(settings.factory.strip(), num_vectors, dimension)
    return FLAT if num_vectors < least_vectors(wanted, dimension) else wanted


def check_enough(settings: VectorSettings, num_vectors: int, dimension: int) -> None:
    """Refuses too few vectors for a FAISS factory string that a user wrote.

    Args:
        settings: Names the factory; a name of ``NAMES`` fits any number.
        num_vectors: How many vectors there are.
        dimension: Their length.

    Raises:
        ConfigError: There are too few.
    """
    if settings.factory.strip() in NAMES:
        return
    least = least_vectors(with_ids(settings.factory), dimension)
    if num_vectors < least:
        raise ConfigError(
            f"the factory {settings.factory!r} needs at least {least} vectors to train on, "
            f"got {num_vectors}",
            hint="name a smaller number of lists or codes, or use the factory 'auto'",
        )


def least_vectors(factory: str, dimension: int) -> int:
    """Returns the number of vectors below which a factory cannot be trained well.

    Args:
        factory: A FAISS factory string.
        dimension: Of the vectors.

    Raises:
        ConfigError: The factory cannot be made.
    """
    return make_index(factory, dimension)[1].least_vectors


def with_ids(factory: str) -> str:
    """Returns a factory string whose index keeps ids of our own and can be reconstructed from.

    Args:
        factory: A FAISS factory string, with or without its leading ``IDMap2``.
    """
    head, _, rest = factory.strip().partition(",")
    return f"IDMap2,{rest if head in ('IDMap', 'IDMap2') else factory.strip()}"


def make_index(factory: str, dimension: int) -> tuple[Any, VectorKind]:
    """Makes an empty FAISS index for inner products, with ids.

    Args:
        factory: A FAISS factory string.
        dimension: Of the vectors, at least 1.

    Raises:
        ConfigError: FAISS or this package does not know the factory, or it does not fit the
            dimension.
    """
    named = factory.removeprefix("IDMap2,")
    try:
        index: Any = faiss.index_factory(dimension, with_ids(factory), faiss.METRIC_INNER_PRODUCT)
    except (RuntimeError, AssertionError, MemoryError) as error:
        raise ConfigError(
            f"FAISS cannot make an index {named!r} for vectors of dimension {dimension}"
            f"{_reason(error)}",
            hint=_hint(named),
        ) from error
    kind = kind_of(index)
    if kind is None:
        inner = type(faiss.downcast_index(index.index)).__name__
        raise ConfigError(
            f"the factory {named!r} makes an {inner}, which cannot be used here",
            hint=_hint(named),
        )
    return index, kind


def _wanted(factory: str, num_vectors: int, dimension: int) -> str:
    if factory == "auto":
        factory = "flat" if num_vectors <= FLAT_MOST else "ivf"
    if factory == "flat":
        return FLAT
    if factory == "hnsw":
        return "IDMap2,HNSW32" if num_vectors >= _GRAPH_LEAST else FLAT
    if factory in ("ivf", "ivf-pq"):
        coded = "Flat" if factory == "ivf" else _codes(dimension)
        return f"IDMap2,IVF{_num_lists(num_vectors)},{coded}"
    return with_ids(factory)


def _num_lists(num_vectors: int) -> int:
    """Returns a power of two near 4 sqrt(n), as FAISS's guidelines have it, with enough in each."""
    near: int = 2 ** round(math.log2(4 * math.sqrt(max(num_vectors, 1))))
    most: int = 2 ** int(math.log2(max(num_vectors // LEAST_PER_CENTROID, 1)))
    return max(_LISTS_LEAST, min(near, most, _LISTS_MOST))


def _codes(dimension: int) -> str:
    parts = [count for count in range(1, dimension + 1) if dimension % count == 0]
    fitting = [count for count in parts if count * _DIMENSIONS_PER_CODE <= dimension]
    # A length with no such divisor would be squeezed into a byte or two.
    enough = fitting and fitting[-1] * 2 * _DIMENSIONS_PER_CODE >= dimension
    return f"PQ{fitting[-1]}" if enough else "SQ8"


def _reason(error: Exception) -> str:
    """FAISS writes where in its sources it failed, and behind that why."""
    text = _WHERE.sub("", " ".join(str(error).split()))
    return f": {text[:_REASON_LETTERS]}" if text else ""


def _hint(factory: str) -> str:
    near = suggest(factory.lower(), NAMES)
    return f"{near}, or a FAISS factory string such as {', '.join(EXAMPLES)}"
