from __future__ import annotations

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.errors import ConfigError
from specrag.retrieval.vector_factory import (
    EXAMPLES,
    FLAT,
    FLAT_MOST,
    NAMES,
    VectorSettings,
    check_enough,
    factory_for,
    least_vectors,
    make_index,
    with_ids,
)
from specrag.retrieval.vector_index import VectorIndex


@pytest.mark.parametrize(
    ("factory", "num", "expected"),
    [
        ("auto", 0, FLAT),
        ("auto", FLAT_MOST, FLAT),
        ("auto", FLAT_MOST + 1, "IDMap2,IVF2048,Flat"),
        ("flat", 10**7, FLAT),
        ("hnsw", 999, FLAT),
        ("hnsw", 1000, "IDMap2,HNSW32"),
        ("ivf", 600, FLAT),
        ("ivf", 624, "IDMap2,IVF16,Flat"),
        ("ivf", 10_000, "IDMap2,IVF256,Flat"),
        ("ivf", 100_000, "IDMap2,IVF1024,Flat"),
        ("ivf-pq", 9983, FLAT),
        ("ivf-pq", 1_000_000, "IDMap2,IVF4096,PQ96"),
        (" HNSW16 ", 1, "IDMap2,HNSW16"),
        ("IDMap,SQ8", 5000, "IDMap2,SQ8"),
        ("IDMap2,SQ8", 5, FLAT),
    ],
)
def test_names_become_factories_that_fit_the_number(factory: str, num: int, expected: str) -> None:
    assert factory_for(VectorSettings(factory), num, 384) == expected


@given(name=st.sampled_from(NAMES), num=st.integers(0, 3 * 10**7), dimension=st.integers(1, 1100))
@settings(deadline=None, max_examples=80)
def test_every_name_fits_any_number_and_dimension(name: str, num: int, dimension: int) -> None:
    factory = factory_for(VectorSettings(name), num, dimension)
    assert least_vectors(factory, dimension) <= num
    check_enough(VectorSettings(name), num, dimension)


@pytest.mark.parametrize("factory", EXAMPLES)
def test_the_examples_can_be_made(factory: str) -> None:
    index, kind = make_index(factory, 384)
    assert isinstance(index, faiss.IndexIDMap2)
    assert index.metric_type == faiss.METRIC_INNER_PRODUCT
    assert kind.least_vectors <= 39 * 1024


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("hsnw", "FAISS cannot make an index 'hsnw' for vectors of dimension 384: could not parse"),
        ("hnws", "did you mean 'hnsw'"),
        ("HNSW16_PQ48", "makes an IndexHNSWPQ"),  # for distances only
        ("IVF16,PQ7", "FAISS cannot make an index 'IVF16,PQ7'"),
        ("IVF0,Flat", "makes an IndexIVFFlat"),
        ("LSH", "'LSH'"),
        ("", "the factory of vectors is blank"),
        ("IVF16,PQ48,RFlat", "makes an IndexRefineFlat, which cannot be used here"),
        ("NSG32", "makes an IndexNSGFlat, which cannot be used here"),
        ("IVF16,RaBitQ", "makes an IndexIVFRaBitQ"),
        ("IDMap2,IDMap2,Flat", "IDMap2"),
    ],
)
def test_a_factory_that_cannot_be_used_is_refused_with_examples(factory: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){message}") as caught:
        factory_for(VectorSettings(factory), 10**6, 384)
    assert caught.value.hint
    assert all(name in caught.value.hint for name in (*NAMES, *EXAMPLES))


@pytest.mark.parametrize(
    ("factory", "least"),
    [("Flat", 0), ("HNSW32", 0), ("SQ8", 384), ("IVF100,Flat", 3900), ("IVF16,PQ48", 9984),
     ("IVF16,PQ48x4fs", 624), ("OPQ48,PQ48x4fs", 624), ("OPQ48,Flat", 9984), ("PCA64,Flat", 384),
     ("HNSW16_SQ8", 384), ("IVF1024_HNSW32,SQ8", 39936)],
)  # fmt: skip
def test_the_least_number_is_that_of_the_largest_part(factory: str, least: int) -> None:
    assert least_vectors(factory, 384) == least
    if least:
        with pytest.raises(ConfigError, match=f"needs at least {least} vectors.*got {least - 1}"):
            check_enough(VectorSettings(factory), least - 1, 384)
        assert factory_for(VectorSettings(factory), least - 1, 384) == FLAT
    check_enough(VectorSettings(factory), least, 384)
    assert factory_for(VectorSettings(factory), least, 384) == with_ids(factory)


@pytest.mark.parametrize("name", ["nprobe", "ef_search", "rescore"])
def test_settings_below_one_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be at least 1, got 0"):
        VectorSettings(**{name: 0})  # type: ignore[arg-type]


def test_training_says_nothing_and_shows_a_bar_only_when_asked(
    capfd: pytest.CaptureFixture[str],
) -> None:
    vectors = np.random.default_rng(0).normal(size=(700, 16)).astype(np.float32)
    for factory in ("OPQ4,IVF4,PQ4x4", "IVF16,SQ8", "PQ4x4fs"):
        VectorIndex.build(np.arange(700), vectors, VectorSettings(factory))
        assert capfd.readouterr() == ("", "")
    VectorIndex.build(np.arange(700), vectors, VectorSettings("IVF16,SQ8"), progress=True)
    shown = capfd.readouterr().err
    assert "training" in shown
    assert "adding vectors" in shown
