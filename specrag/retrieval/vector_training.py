"""Teaches a FAISS index the means and rotations it needs, the same way each time."""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from specrag.retrieval.vector_kind import OPQ_BITS, VectorKind, base_index, inner_index, rotation_of

# FAISS's own 256 points a centroid and 25 rounds take ten times as long for hardly more recall.
_PER_CENTROID = 64
_ROUNDS = 10
_LEAST_SAMPLE = 16384  # for a product quantizer of 8 bits
_SEED = 0


def train(
    index: Any, kind: VectorKind, vectors: npt.NDArray[np.float32], *, progress: bool
) -> None:
    """Trains an index on a sample of vectors; does nothing where it needs no training.

    Args:
        index: An empty index.
        kind: What it is.
        vectors: All that it will hold, [n, dimension].
        progress: Whether to show a progress bar on standard error.
    """
    if index.is_trained:
        return
    sample = _sample(vectors, max(_PER_CENTROID * kind.num_centroids, _LEAST_SAMPLE))
    rotation, base = rotation_of(inner_index(index)), base_index(index)
    if hasattr(base, "pq"):
        _hurry(base.pq)
    if hasattr(base, "do_polysemous_training"):
        # It orders codes for a comparison that is not used here, and takes most of the time.
        base.do_polysemous_training = False
    with tqdm(total=len(sample), desc="training", disable=not progress) as bar:
        if rotation is not None:
            _train_rotation(rotation, base, sample)
        index.train(sample)
        bar.update(len(sample))


def _sample(vectors: npt.NDArray[np.float32], most: int) -> npt.NDArray[np.float32]:
    if len(vectors) > most:
        chosen = np.random.default_rng(_SEED).choice(len(vectors), most, replace=False)
        vectors = vectors[np.sort(chosen)]  # in order, because they may be on disk
    return np.ascontiguousarray(vectors)


def _hurry(codes: Any) -> None:
    codes.cp.niter = _ROUNDS
    codes.cp.max_points_per_centroid = _PER_CENTROID


def _train_rotation(rotation: Any, base: Any, sample: npt.NDArray[np.float32]) -> None:
    """Learns it for codes as long as those of the index; FAISS alone would assume 8 bits."""
    bits = int(base.pq.nbits) if hasattr(base, "pq") else OPQ_BITS
    codes = faiss.ProductQuantizer(rotation.d_out, rotation.M, bits)
    _hurry(codes)
    rotation.pq = codes
    try:
        rotation.train(sample)
    finally:
        rotation.pq = None  # it does not own them
