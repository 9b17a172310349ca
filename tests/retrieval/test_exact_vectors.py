from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.errors import IndexFormatError
from specrag.retrieval import exact_vectors
from specrag.retrieval.exact_vectors import KeptVectors, Vectors, best_rows, inner_products
from tests.oracles.nearest import nearest


def vectors_of(num: int, dimension: int, seed: int = 0) -> Vectors:
    return np.random.default_rng(seed).normal(size=(num, dimension)).astype(np.float32)


@given(
    num=st.integers(1, 40), dimension=st.sampled_from([1, 3, 8, 64, 384]), seed=st.integers(0, 9)
)
@settings(deadline=None, max_examples=60)
def test_an_inner_product_is_the_same_bits_whatever_stands_beside_it(
    num: int, dimension: int, seed: int
) -> None:
    vectors, query = vectors_of(num, dimension, seed), vectors_of(1, dimension, seed + 50)[0]
    together = inner_products(query, vectors)
    alone = [inner_products(query, vectors[row : row + 1])[0] for row in range(num)]
    gathered = inner_products(query, vectors[::-1][np.arange(num)])[::-1]
    assert together.tolist() == [float(one) for one in alone] == gathered.tolist()


@given(num=st.integers(0, 30), k=st.integers(1, 35), block=st.integers(1, 12))
@settings(deadline=None, max_examples=60)
def test_the_best_rows_are_those_of_the_oracle_in_blocks_of_any_size(
    num: int, k: int, block: int
) -> None:
    few = np.random.default_rng(num).integers(0, 6, size=num)
    vectors, query = vectors_of(6, 4)[few], vectors_of(1, 4, 1)[0]
    ids = np.random.default_rng(k).permutation(num).astype(np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_vectors, "_BLOCK", block)
        _, found = best_rows(query, KeptVectors(vectors), np.arange(num), ids, k)
    scored = dict(zip(ids.tolist(), vectors.tolist(), strict=True))
    assert found.tolist() == [number for _, number in nearest(query.tolist(), scored, k)]


def test_kept_vectors_come_back_from_their_file(tmp_path: Path) -> None:
    kept = KeptVectors(vectors_of(0, 5))
    for seed in range(3):
        kept.append(vectors_of(seed * 7, 5, seed))
    whole = np.concatenate([vectors_of(seed * 7, 5, seed) for seed in range(3)])
    kept.save(tmp_path / "kept.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "kept.npy"), whole)
    for source in (kept, KeptVectors.load(tmp_path / "kept.npy", 21, 5)):
        rows = np.array([20, 0, 7, 7])
        np.testing.assert_array_equal(source.take(rows), whole[rows])
        assert source.take(rows).flags.writeable


def test_no_kept_vectors_can_be_saved(tmp_path: Path) -> None:
    KeptVectors(vectors_of(0, 5)).save(tmp_path / "kept.npy")
    assert KeptVectors.load(tmp_path / "kept.npy", 0, 5).take(np.arange(0)).shape == (0, 5)


@pytest.mark.parametrize(("num", "dimension"), [(20, 5), (21, 4)])
def test_a_file_of_another_shape_is_refused(tmp_path: Path, num: int, dimension: int) -> None:
    KeptVectors(vectors_of(21, 5)).save(tmp_path / "kept.npy")
    with pytest.raises(IndexFormatError, match="should hold float32 of shape"):
        KeptVectors.load(tmp_path / "kept.npy", num, dimension)
