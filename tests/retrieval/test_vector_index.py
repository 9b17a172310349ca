from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
import pytest

from specrag.errors import IndexFormatError, InputError
from specrag.retrieval.vector_index import MISSING_ID, VectorIndex


def unit_vectors(n: int, dimension: int, seed: int = 0) -> npt.NDArray[np.float32]:
    vectors = np.random.default_rng(seed).normal(size=(n, dimension)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def ids_of(*values: int) -> npt.NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


@pytest.fixture
def index() -> VectorIndex:
    index = VectorIndex.create(8)
    index.add(np.arange(10, 30, dtype=np.int64), unit_vectors(20, 8))
    return index


def test_search_equals_a_sorted_inner_product(index: VectorIndex) -> None:
    queries = unit_vectors(3, 8, seed=1)
    products = queries @ unit_vectors(20, 8).T
    hits = index.search(queries, 5)
    np.testing.assert_array_equal(hits.ids, 10 + np.argsort(-products, axis=1)[:, :5])
    np.testing.assert_allclose(hits.scores, -np.sort(-products, axis=1)[:, :5], atol=1e-6)


def test_vectors_may_be_added_in_parts(index: VectorIndex) -> None:
    parts = VectorIndex.create(8)
    for first in (0, 5):
        last = 20 if first else 5
        parts.add(np.arange(10 + first, 10 + last, dtype=np.int64), unit_vectors(20, 8)[first:last])
    queries = unit_vectors(2, 8, seed=1)
    np.testing.assert_array_equal(parts.search(queries, 20).ids, index.search(queries, 20).ids)


def test_k_beyond_the_size_is_filled_up(index: VectorIndex) -> None:
    ids = index.search(unit_vectors(1, 8), 25).ids[0]
    assert sorted(ids[:20]) == list(range(10, 30))
    assert list(ids[20:]) == [MISSING_ID] * 5


def test_searches_are_counted(index: VectorIndex) -> None:
    assert index.num_searches == 0
    index.search(unit_vectors(3, 8), 1)
    index.search(unit_vectors(1, 8), 1)
    assert index.num_searches == 2


def test_a_saved_index_is_the_same(index: VectorIndex, tmp_path: Path) -> None:
    index.save(tmp_path / "vectors.faiss")
    loaded = VectorIndex.load(tmp_path / "vectors.faiss")
    assert (len(loaded), loaded.dimension) == (20, 8)
    for part, expected in zip(
        loaded.search(unit_vectors(2, 8), 20), index.search(unit_vectors(2, 8), 20), strict=True
    ):
        np.testing.assert_array_equal(part, expected)


@pytest.mark.parametrize(
    "vectors",
    [
        unit_vectors(2, 7),
        unit_vectors(2, 8)[0],
        unit_vectors(2, 8).astype(np.float64),
    ],
)
def test_unfit_vectors_are_refused(index: VectorIndex, vectors: Any) -> None:
    with pytest.raises(InputError, match=r"float32 of shape \[n, 8\], got float"):
        index.add(ids_of(1, 2), vectors)
    with pytest.raises(InputError, match=r"float32 of shape \[n, 8\], got float"):
        index.search(vectors, 1)
    assert (len(index), index.num_searches) == (20, 0)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (ids_of(1), r"ids must be int64 of shape \[2\].*got int64 of shape \[1\]"),
        (ids_of(1, 2).astype(np.int32), "ids must be int64.*got int32"),
        (ids_of(1, -1), "ids must be at least 0, got -1"),
        (ids_of(1, 1), "differ from each other"),
        (ids_of(1, 10), "ids must be new to the index"),
    ],
)
def test_unfit_ids_are_refused(index: VectorIndex, ids: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        index.add(ids, unit_vectors(2, 8))
    assert len(index) == 20


def test_unfit_sizes_are_refused(index: VectorIndex) -> None:
    with pytest.raises(InputError, match="k must be at least 1, got 0"):
        index.search(unit_vectors(1, 8), 0)
    with pytest.raises(InputError, match="dimension of an index must be at least 1, got 0"):
        VectorIndex.create(0)


@pytest.mark.parametrize("content", [b"", b"nonsense" * 100, None])
def test_a_file_that_is_no_index_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "vectors.faiss"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(IndexFormatError, match="cannot read the vectors in .*vectors.faiss"):
        VectorIndex.load(path)


def test_a_truncated_file_is_refused(index: VectorIndex, tmp_path: Path) -> None:
    path = tmp_path / "vectors.faiss"
    index.save(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(IndexFormatError, match="cannot read the vectors"):
        VectorIndex.load(path)


@pytest.mark.parametrize(
    ("factory", "metric"),
    [
        ("Flat", faiss.METRIC_INNER_PRODUCT),
        ("IDMap2,Flat", faiss.METRIC_L2),
        ("IDMap,Flat", faiss.METRIC_INNER_PRODUCT),
        ("IDMap2,HNSW4", faiss.METRIC_INNER_PRODUCT),
    ],
)
def test_another_kind_of_index_is_refused(tmp_path: Path, factory: str, metric: int) -> None:
    faiss.write_index(faiss.index_factory(8, factory, metric), str(tmp_path / "other"))
    with pytest.raises(IndexFormatError, match="not an index of kind 'IDMap2,Flat'"):
        VectorIndex.load(tmp_path / "other")


def test_a_file_that_cannot_be_written_is_reported(index: VectorIndex, tmp_path: Path) -> None:
    with pytest.raises(IndexFormatError, match="cannot write the vectors") as caught:
        index.save(tmp_path / "no_such_folder" / "vectors.faiss")
    assert caught.value.hint
