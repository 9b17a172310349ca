"""Seeded unit vectors around cluster centres, and their true neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
_BLOCK = 32768
_PER_CENTRE = 1000  # vectors
_LEAST_CENTRES = 16
# Length of what is added to a centre of length 1: two vectors of a cluster have the cosine 0.5.
_SPREAD = 1.0


def write_points(path: Path, num_vectors: int, dimension: int, seed: int) -> None:
    """Writes vectors as a NumPy file, a block at a time.

    Args:
        path: Where to write.
        num_vectors: How many.
        dimension: Of the vectors.
        seed: The same seed gives the same vectors.
    """
    header = {"descr": "<f4", "fortran_order": False, "shape": (num_vectors, dimension)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for block in points(num_vectors, dimension, seed):
            file.write(block.data)


def points(
    num_vectors: int, dimension: int, seed: int, *, centres_of: int | None = None, stream: int = 1
) -> Iterator[Vectors]:
    """Yields vectors of length 1 in blocks, [at most 32768, dimension].

    Args:
        num_vectors: How many.
        dimension: Of the vectors.
        seed: The same seed gives the same vectors.
        centres_of: The number of vectors that the number of centres is for; None for
            ``num_vectors``.
        stream: Vectors of another stream are others around the same centres.
    """
    num_centres = max(_LEAST_CENTRES, (centres_of or num_vectors) // _PER_CENTRE)
    centres = _unit(np.random.default_rng([seed, 0]).standard_normal((num_centres, dimension)))
    draw = np.random.default_rng([seed, stream])
    for first in range(0, num_vectors, _BLOCK):
        shape = (min(_BLOCK, num_vectors - first), dimension)
        noise = draw.standard_normal(shape, dtype=np.float32) * (_SPREAD / np.sqrt(dimension))
        yield _unit(centres[draw.integers(num_centres, size=shape[0])] + noise)


def queries(num_queries: int, num_vectors: int, dimension: int, seed: int) -> Vectors:
    """Returns queries around the centres of some vectors, [num_queries, dimension].

    Args:
        num_queries: How many.
        num_vectors: Of the index.
        dimension: Of the vectors.
        seed: Of the vectors.
    """
    blocks = points(num_queries, dimension, seed, centres_of=num_vectors, stream=2)
    return np.concatenate(list(blocks))


def true_neighbours(asked: Vectors, vectors: Vectors, k: int) -> npt.NDArray[np.int64]:
    """Returns the rows of the k nearest vectors of each query, [num_queries, k].

    Args:
        asked: The queries, [num_queries, dimension].
        vectors: All vectors, [n, dimension]; read a block at a time.
        k: At most n.
    """
    scores = np.empty((len(asked), 0), dtype=np.float32)
    rows = np.empty((len(asked), 0), dtype=np.int64)
    for first in range(0, len(vectors), _BLOCK):
        block = np.asarray(vectors[first : first + _BLOCK])
        scores = np.concatenate([scores, asked @ block.T], axis=1)
        here = np.broadcast_to(np.arange(first, first + len(block)), (len(asked), len(block)))
        rows = np.concatenate([rows, here], axis=1)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        scores = np.take_along_axis(scores, best, axis=1)
        rows = np.take_along_axis(rows, best, axis=1)
    return rows


def _unit(vectors: npt.NDArray[np.floating]) -> Vectors:
    unit: Vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit
