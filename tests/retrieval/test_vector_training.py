from __future__ import annotations

from typing import Any

import faiss
import numpy as np
import pytest

from specrag.retrieval import vector_training
from specrag.retrieval.vector_factory import make_index
from specrag.retrieval.vector_training import train


def trained_on(factory: str, num: int, monkeypatch: pytest.MonkeyPatch) -> list[list[float]]:
    """The first coordinates of what an index was trained on: they number the vectors."""
    seen: list[list[float]] = []
    index, kind = make_index(factory, 4)
    vectors = np.random.default_rng(0).normal(size=(num, 4)).astype(np.float32)
    vectors[:, 0] = np.arange(num)
    learn = type(index).train

    def spied(self: faiss.Index, sample: np.ndarray) -> None:
        seen.append(sample[:, 0].tolist())
        learn(self, sample)

    monkeypatch.setattr(type(index), "train", spied)
    train(index, kind, vectors, progress=False)
    assert index.is_trained
    return seen


def test_few_vectors_are_all_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert trained_on("IVF4,Flat", 300, monkeypatch) == [list(range(300))]


def test_of_many_a_sample_from_everywhere_is_used_the_same_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vector_training, "_LEAST_SAMPLE", 100)
    (sample,) = trained_on("IVF4,Flat", 3000, monkeypatch)
    assert len(set(sample)) == len(sample) == 64 * 4 <= 256 * 4
    assert sample == sorted(sample)
    assert min(sample) < 100
    assert max(sample) > 2900
    assert trained_on("IVF4,Flat", 3000, monkeypatch)[-1] == sample


@pytest.mark.parametrize("factory", ["Flat", "HNSW8", "SQfp16"])
def test_what_needs_no_training_gets_none(factory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trained_on(factory, 10, monkeypatch) == []


@pytest.mark.parametrize("factory", ["OPQ2,PQ2x4", "OPQ2,IVF4,PQ2x4fs"])
def test_a_rotation_is_learned_and_keeps_no_memory_that_is_gone(factory: str) -> None:
    index, kind = make_index(factory, 4)
    train(
        index,
        kind,
        np.random.default_rng(0).normal(size=(700, 4)).astype(np.float32),
        progress=False,
    )
    rotated: Any = faiss.downcast_index(index.index)
    rotation: Any = faiss.downcast_VectorTransform(rotated.chain.at(0))
    assert rotation.is_trained
    assert rotation.pq is None
    matrix = faiss.vector_to_array(rotation.A).reshape(4, 4)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(4), atol=1e-4)
