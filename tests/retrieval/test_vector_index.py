from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.errors import IndexFormatError, InputError
from specrag.retrieval.vector_factory import VectorSettings
from specrag.retrieval.vector_index import MISSING_ID, VectorIndex
from specrag.retrieval.vector_rows import Selection
from tests.oracles.nearest import nearest


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
        VectorIndex.load(path, mapped=False)
    path.write_bytes(path.read_bytes()[:-99])
    with pytest.raises(IndexFormatError, match="cannot read the vectors"):
        VectorIndex.load(path)


@pytest.mark.parametrize(
    ("factory", "metric"),
    [
        ("Flat", faiss.METRIC_INNER_PRODUCT),
        ("IDMap2,Flat", faiss.METRIC_L2),
        ("IDMap,Flat", faiss.METRIC_INNER_PRODUCT),
        ("IDMap2,NSG8", faiss.METRIC_INNER_PRODUCT),
        ("IDMap2,HNSW4", faiss.METRIC_L2),
        ("IDMap2,SQ8", faiss.METRIC_INNER_PRODUCT),  # not trained
    ],
)
def test_another_kind_of_index_is_refused(tmp_path: Path, factory: str, metric: int) -> None:
    faiss.write_index(faiss.index_factory(8, factory, metric), str(tmp_path / "other"))
    with pytest.raises(IndexFormatError, match="not an index with ids that are known to specrag"):
        VectorIndex.load(tmp_path / "other")


def test_an_index_with_fewer_ids_than_vectors_is_refused(tmp_path: Path) -> None:
    made: Any = faiss.index_factory(8, "IDMap2,Flat", faiss.METRIC_INNER_PRODUCT)
    made.add_with_ids(unit_vectors(5, 8), np.arange(5))
    faiss.copy_array_to_vector(np.arange(4), made.id_map)
    faiss.write_index(made, str(tmp_path / "other"))
    with pytest.raises(IndexFormatError, match=r"cannot read|not an index with ids"):
        VectorIndex.load(tmp_path / "other")


def test_exact_vectors_of_another_index_are_refused(tmp_path: Path) -> None:
    for name, num in (("one", 50), ("two", 49)):
        made = VectorIndex.build(np.arange(num), unit_vectors(num, 8), VectorSettings("SQ8"))
        (tmp_path / name).mkdir()
        made.save(tmp_path / name)
    (tmp_path / "two" / "vectors.exact.npy").replace(tmp_path / "one" / "vectors.exact.npy")
    with pytest.raises(
        IndexFormatError, match=r"should hold float32 of shape \[50, 8\].*\[49, 8\]"
    ):
        VectorIndex.load(tmp_path / "one")


def test_a_pickle_in_place_of_exact_vectors_is_not_opened(tmp_path: Path) -> None:
    VectorIndex.build(np.arange(50), unit_vectors(50, 8), VectorSettings("SQ8")).save(tmp_path)
    np.save(tmp_path / "vectors.exact.npy", np.array([print] * 50), allow_pickle=True)
    with pytest.raises(IndexFormatError, match="cannot read the exact vectors"):
        VectorIndex.load(tmp_path)


def test_an_index_takes_the_path_of_a_file_or_of_its_folder(
    index: VectorIndex, tmp_path: Path
) -> None:
    index.save(tmp_path / "any.name")
    assert len(VectorIndex.load(tmp_path / "any.name")) == 20
    index.save(tmp_path)
    assert len(VectorIndex.load(tmp_path)) == len(VectorIndex.load(tmp_path / "vectors.faiss"))


def test_an_index_that_must_be_trained_is_built_at_once(tmp_path: Path) -> None:
    index = VectorIndex.create(8, "SQ8")
    with pytest.raises(InputError, match="must be trained before 2 vectors") as caught:
        index.add(ids_of(1, 2), unit_vectors(2, 8))
    assert "VectorIndex.build" in str(caught.value)
    with pytest.raises(InputError, match="not trained cannot be saved"):
        index.save(tmp_path)
    assert index.search(unit_vectors(1, 8), 3).ids.tolist() == [[MISSING_ID] * 3]


@pytest.mark.parametrize("factory", ["HNSW8", "HNSW8,Flat", "Flat", "SQfp16"])
def test_without_training_vectors_may_be_added_one_by_one(factory: str, tmp_path: Path) -> None:
    vectors = unit_vectors(40, 8)
    index = VectorIndex.create(8, factory)
    for place in range(40):
        index.add(ids_of(place), vectors[place : place + 1])
        vectors_so_far = index.vectors_of(np.arange(place + 1))
        np.testing.assert_array_equal(vectors_so_far, vectors[: place + 1])
    np.testing.assert_array_equal(index.search(vectors, 1).ids[:, 0], np.arange(40))
    index.save(tmp_path)
    np.testing.assert_array_equal(VectorIndex.load(tmp_path).vectors_of(np.arange(40)), vectors)


def test_later_changes_of_the_callers_array_change_nothing() -> None:
    vectors = unit_vectors(5, 8)
    index = VectorIndex.create(8, "SQfp16")
    index.add(np.arange(5), vectors)
    vectors[:] = 0
    np.testing.assert_array_equal(index.vectors_of(np.arange(5)), unit_vectors(5, 8))


@pytest.mark.parametrize("factory", ["flat", "hnsw", "SQ8", "ivf"])
def test_equal_scores_are_ordered_by_id(factory: str) -> None:
    """Also where only some of many equal ones are wanted."""
    vectors = np.tile(unit_vectors(3, 8), (700, 1))
    ids = np.random.default_rng(0).permutation(len(vectors)).astype(np.int64)
    index = VectorIndex.build(ids, vectors, VectorSettings(factory))
    hits = index.search(unit_vectors(1, 8), 12)
    assert len(set(hits.scores[0].tolist())) == 1
    assert hits.ids[0].tolist() == sorted(hits.ids[0].tolist())
    if factory == "flat":
        assert hits.ids[0].tolist() == sorted(ids[::3].tolist())[:12]


@given(
    numbers=st.lists(st.integers(0, 40), min_size=1, max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=3),
    seed=st.integers(0, 5),
    k=st.integers(1, 70),
    gone=st.sets(st.integers(0, 59)),
)
@settings(deadline=None, max_examples=60)
def test_segments_find_together_what_one_index_finds(
    numbers: list[int], cuts: list[int], seed: int, k: int, gone: set[int]
) -> None:
    """Bit by bit, with equal vectors among them and some that are gone."""
    vectors = unit_vectors(41, 6)[numbers]
    ids = np.arange(len(numbers), dtype=np.int64)
    excluded = np.array(sorted(gone), dtype=np.int64)
    query = unit_vectors(1, 6, seed)
    found: list[tuple[float, int]] = []
    for part in np.split(ids, sorted(min(cut, len(ids)) for cut in cuts)):
        index = VectorIndex.build(part, vectors[part])
        hits = index.search(query, k, Selection(excluded=excluded))
        found += zip((-hits.scores[0]).tolist(), hits.ids[0].tolist(), strict=True)
    merged = sorted(pair for pair in found if pair[1] != MISSING_ID)[:k]
    whole = VectorIndex.build(ids, vectors).search(query, k, Selection(excluded=excluded))
    assert [number for _, number in merged] == [n for n in whole.ids[0].tolist() if n >= 0]
    assert [-score for score, _ in merged] == whole.scores[0, : len(merged)].tolist()
    by_id = dict(enumerate(vectors.tolist()))
    true = nearest(query[0].tolist(), by_id, k, excluded=gone)
    np.testing.assert_allclose([-pair[0] for pair in merged], [pair[0] for pair in true], atol=1e-6)


def test_numbers_that_are_none_do_not_hang_a_search() -> None:
    index = VectorIndex.build(np.arange(3000), unit_vectors(3000, 8))
    hits = index.search(np.full((1, 8), np.nan, dtype=np.float32), 5)
    assert hits.ids.shape == (1, 5)


def test_a_search_may_run_in_many_threads() -> None:
    index = VectorIndex.build(np.arange(3000), unit_vectors(3000, 8), VectorSettings("SQ8"))
    selection = Selection(np.arange(0, 3000, 2))
    queries = unit_vectors(40, 8, 1)
    expected = index.search(queries, 5, selection).ids
    with ThreadPoolExecutor(8) as pool:
        rows = pool.map(
            lambda one: index.search(queries[one : one + 1], 5, selection).ids, range(40)
        )
        np.testing.assert_array_equal(np.concatenate(list(rows)), expected)
    assert index.num_searches == 41


def test_no_queries_find_nothing(index: VectorIndex) -> None:
    assert index.search(np.empty((0, 8), dtype=np.float32), 3).ids.shape == (0, 3)


def test_a_file_that_cannot_be_written_is_reported(index: VectorIndex, tmp_path: Path) -> None:
    with pytest.raises(IndexFormatError, match="cannot write the vectors") as caught:
        index.save(tmp_path / "no_such_folder" / "vectors.faiss")
    assert caught.value.hint
