"""What a vector index of every kind must keep to; see ``specrag/retrieval/vector_index.py``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from specrag.errors import IndexFormatError, InputError
from specrag.retrieval import vector_search
from specrag.retrieval.vector_factory import VectorSettings
from specrag.retrieval.vector_index import MISSING_ID, VectorIndex
from specrag.retrieval.vector_kind import VectorKind
from specrag.retrieval.vector_rows import Selection
from tests.oracles.nearest import nearest

Ids = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]
NUM, DIMENSION, K = 1000, 16, 10


@dataclass(frozen=True, slots=True)
class Subject:
    """An index and what went into it."""

    index: VectorIndex
    ids: Ids
    vectors: Vectors
    settings: VectorSettings

    @property
    def by_id(self) -> dict[int, list[float]]:
        return dict(zip(self.ids.tolist(), self.vectors.tolist(), strict=True))


class Case(NamedTuple):
    """A factory, how hard to look, and the share of the true neighbours that must be found."""

    settings: VectorSettings
    least_recall: float


CASES = {
    "flat": Case(VectorSettings("Flat"), 1.0),
    "auto": Case(VectorSettings(), 1.0),
    "hnsw": Case(VectorSettings("hnsw", ef_search=200), 0.99),
    "hnsw-sq8": Case(VectorSettings("HNSW16_SQ8", ef_search=200), 0.99),
    "ivf": Case(VectorSettings("ivf", nprobe=16), 1.0),
    "ivf-hnsw": Case(VectorSettings("IVF16_HNSW8,Flat", nprobe=16), 0.99),
    "sq8": Case(VectorSettings("IDMap2,SQ8"), 1.0),
    "ivf-sq8": Case(VectorSettings("IVF16,SQ8", nprobe=16), 1.0),
    "pq": Case(VectorSettings("PQ8x4", rescore=20), 0.95),
    "ivf-pq": Case(VectorSettings("IVF16,PQ8x4", nprobe=16, rescore=20), 0.95),
    "opq-ivf-pq": Case(VectorSettings("OPQ8,IVF16,PQ8x4", nprobe=16, rescore=20), 0.95),
    "pca": Case(VectorSettings("PCA12,Flat", rescore=20), 0.95),
    "fast": Case(VectorSettings("IVF16,PQ8x4fs", nprobe=16, rescore=20), 0.95),
    "opq-fast": Case(VectorSettings("OPQ8,PQ8x4fs", rescore=20), 0.95),
}
EXACT = ("flat", "auto")


def clustered(num: int, seed: int) -> Vectors:
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(20, DIMENSION))
    vectors = centres[draw.integers(20, size=num)] + 0.6 * draw.normal(size=(num, DIMENSION))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32)


@cache
def built(name: str) -> Subject:
    """Ids in no order, with gaps, and above 32 bits."""
    ids = np.random.default_rng(5).permutation(NUM).astype(np.int64) * 3 + 2**40
    vectors = clustered(NUM, 0)
    settings = CASES[name].settings
    return Subject(VectorIndex.build(ids, vectors, settings), ids, vectors, settings)


@pytest.fixture(params=CASES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def subject(name: str, monkeypatch: pytest.MonkeyPatch) -> Subject:
    """Small selections go to FAISS, too, so that its selectors are seen at work."""
    monkeypatch.setattr(vector_search, "_FEW_ROWS", 0)
    monkeypatch.setattr(vector_search, "_FEW_SHARE", 0.0)
    return built(name)


@cache
def expected(count: int) -> list[list[tuple[float, int]]]:
    subject = built("flat")
    return [nearest(query, subject.by_id, K) for query in clustered(count, 1).tolist()]


def test_the_true_neighbours_are_found(name: str, subject: Subject) -> None:
    hits = subject.index.search(clustered(20, 1), K)
    pairs = list(zip(hits.ids.tolist(), expected(20), strict=True))
    recall = np.mean([len({*got} & {number for _, number in true}) for got, true in pairs]) / K
    assert recall >= CASES[name].least_recall
    if name in EXACT:
        assert all(got == [number for _, number in true] for got, true in pairs)


def test_scores_are_those_of_the_vectors_themselves_best_first(subject: Subject) -> None:
    queries = clustered(5, 2)
    hits = subject.index.search(queries, K)
    for query, scores, ids in zip(queries, hits.scores, hits.ids, strict=True):
        own = np.array([subject.by_id[number] for number in ids.tolist()]) @ query.astype(float)
        np.testing.assert_allclose(scores, own, atol=1e-6)
        assert (np.diff(scores) <= 0).all()
        assert len(set(ids.tolist())) == K
    assert [hits.scores.dtype.name, hits.ids.dtype.name] == ["float32", "int64"]


def test_a_score_depends_on_query_and_vector_alone(subject: Subject) -> None:
    queries = clustered(30, 3)
    together = subject.index.search(queries, K)
    for place in (0, 17, 29):
        alone = subject.index.search(queries[place : place + 1], K)
        held = dict(zip(together.ids[place].tolist(), together.scores[place], strict=True))
        shared = [number for number in alone.ids[0].tolist() if number in held]
        assert len(shared) >= K - 2
        own = dict(zip(alone.ids[0].tolist(), alone.scores[0], strict=True))
        assert [own[number] for number in shared] == [held[number] for number in shared]


@pytest.mark.parametrize("how", ["allowed", "excluded", "both"])
def test_only_what_is_selected_is_found_and_all_of_it(
    name: str, subject: Subject, how: str
) -> None:
    for share in (0.0, 0.004, 0.03, 0.3, 0.99, 1.0):
        check_selection(name, subject, how, share)


def check_selection(name: str, subject: Subject, how: str, share: float) -> None:
    chosen = np.random.default_rng(int(share * 1000)).random(NUM) < share
    barred = np.random.default_rng(8).random(NUM) < 0.2
    allowed = None if how == "excluded" else subject.ids[chosen]
    excluded = subject.ids[~chosen if how == "excluded" else barred] if how != "allowed" else None
    legal = {*subject.ids[chosen & ~barred if how == "both" else chosen].tolist()}
    hits = subject.index.search(clustered(3, 4), K, Selection(allowed, excluded))
    for ids, scores in zip(hits.ids.tolist(), hits.scores.tolist(), strict=True):
        found = [number for number in ids if number != MISSING_ID]
        assert {*found} <= legal
        assert len(set(found)) == len(found) == min(K, len(legal))
        assert ids[len(found) :] == [MISSING_ID] * (K - len(found))
        assert scores[len(found) :] == [-np.inf] * (K - len(found))
    if name in EXACT:
        query = clustered(3, 4)[0].tolist()
        true = nearest(query, subject.by_id, K, allowed=legal)
        assert hits.ids[0, : len(true)].tolist() == [number for _, number in true]


def test_a_selective_search_finds_the_true_neighbours(name: str, subject: Subject) -> None:
    allowed = subject.ids[np.random.default_rng(6).random(NUM) < 0.1]
    queries = clustered(20, 7)
    hits = subject.index.search(queries, K, Selection(allowed))
    got = 0
    for query, ids in zip(queries.tolist(), hits.ids.tolist(), strict=True):
        true = nearest(query, subject.by_id, K, allowed=allowed.tolist())
        got += len({*ids} & {number for _, number in true})
    assert got / (20 * K) >= min(CASES[name].least_recall, 0.99)


def test_few_selected_are_compared_without_the_index(name: str) -> None:
    subject = built(name)
    allowed = np.sort(subject.ids)[100:160]
    query = clustered(1, 9)
    hits = subject.index.search(query, K, Selection(allowed))
    true = nearest(query[0].tolist(), subject.by_id, K, allowed=allowed.tolist())
    assert hits.ids[0].tolist() == [number for _, number in true]


def test_a_selection_serves_many_searches_and_indexes(subject: Subject) -> None:
    half = VectorIndex.build(subject.ids[:40], subject.vectors[:40], VectorSettings("flat"))
    selection = Selection(np.append(subject.ids[:20], [7, -1]), subject.ids[:5])
    for index in (subject.index, half, subject.index):
        hits = index.search(clustered(2, 10), 20, selection)
        assert [sorted(row) for row in hits.ids.tolist()] == [
            sorted([MISSING_ID] * 5 + subject.ids[5:20].tolist())
        ] * 2


@pytest.mark.parametrize("k", [NUM - 1, NUM, NUM + 7])
def test_nothing_is_missing_however_many_are_asked_for(subject: Subject, k: int) -> None:
    ids = subject.index.search(clustered(1, 11), k).ids[0]
    assert len(set(ids[:NUM].tolist())) == min(k, NUM)
    assert set(ids[:NUM].tolist()) <= set(subject.ids.tolist())
    assert (ids[NUM:] == MISSING_ID).all()


def test_nothing_is_missing_however_little_effort_is_asked_for(name: str) -> None:
    """Nor where one list, or the nodes that one candidate leads to, hold too few."""
    subject = built(name)
    lazy = VectorSettings(CASES[name].settings.factory, nprobe=1, ef_search=1, rescore=1)
    index = VectorIndex.build(subject.ids, subject.vectors, lazy)
    for selection in (None, Selection(subject.ids[: NUM // 2])):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(vector_search, "_FEW_ROWS", 0)
            ids = index.search(clustered(3, 17), 200, selection).ids
        assert [len(set(row)) for row in ids.tolist()] == [200] * 3
        assert MISSING_ID not in ids


def test_a_kind_that_can_be_told_what_to_find_is_told(
    name: str, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a search for one of a hundred would look at a hundred times as many."""
    asked: list[bool] = []
    told = VectorKind.parameters

    def spied(kind: VectorKind, **options: Any) -> Any:
        asked.append(options["selector"] is not None)
        return told(kind, **options)

    monkeypatch.setattr(VectorKind, "parameters", spied)
    subject.index.search(clustered(1, 18), 1, Selection(subject.ids[: NUM // 2]))
    assert asked == [not any(part in name for part in ("fast", "pq")) or name.endswith("ivf-pq")]


def test_vectors_come_back_exactly(subject: Subject) -> None:
    chosen = np.random.default_rng(12).integers(NUM, size=50)
    np.testing.assert_array_equal(
        subject.index.vectors_of(subject.ids[chosen]), subject.vectors[chosen]
    )
    assert subject.index.vectors_of(np.empty(0, dtype=np.int64)).shape == (0, DIMENSION)
    with pytest.raises(InputError, match="no vector with the id 12345"):
        subject.index.vectors_of(np.array([subject.ids[0], 12345], dtype=np.int64))


@pytest.mark.parametrize("mapped", [False, True])
def test_a_saved_index_is_the_same(subject: Subject, tmp_path: Path, mapped: bool) -> None:
    subject.index.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(subject.index.file_names)
    loaded = VectorIndex.load(tmp_path, subject.settings, mapped=mapped)
    assert (len(loaded), loaded.dimension) == (NUM, DIMENSION)
    assert loaded.file_names == subject.index.file_names
    half = Selection(subject.ids[::2])
    for selection in (None, half):
        before = subject.index.search(clustered(5, 13), K, selection)
        after = loaded.search(clustered(5, 13), K, selection)
        np.testing.assert_array_equal(before.ids, after.ids)
        np.testing.assert_array_equal(before.scores, after.scores)
    np.testing.assert_array_equal(loaded.vectors_of(subject.ids), subject.vectors)


def test_a_saved_index_does_not_change(subject: Subject, tmp_path: Path) -> None:
    subject.index.save(tmp_path)
    for index in (subject.index, VectorIndex.load(tmp_path)):
        with pytest.raises(InputError, match="an index that was saved does not change"):
            index.add(np.array([1], dtype=np.int64), clustered(1, 14))
        assert len(index) == NUM


def test_the_same_vectors_give_the_same_files(name: str, subject: Subject, tmp_path: Path) -> None:
    again = VectorIndex.build(subject.ids, subject.vectors, subject.settings)
    for folder, index in (("one", subject.index), ("two", again)):
        (tmp_path / folder).mkdir()
        index.save(tmp_path / folder)
    for file in again.file_names:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_each_file_that_is_cut_or_missing_is_noticed(subject: Subject, tmp_path: Path) -> None:
    for file in subject.index.file_names:
        for mapped in (False, True):
            subject.index.save(tmp_path)
            whole = (tmp_path / file).read_bytes()
            # FAISS does not miss the last bytes of a mapped file: the manifest does.
            for left in (0, 3, len(whole) // 2, len(whole) - (1 if not mapped else 99)):
                (tmp_path / file).write_bytes(whole[:left])
                with pytest.raises(IndexFormatError, match=f"cannot read the .*{file}"):
                    VectorIndex.load(tmp_path, mapped=mapped)
            (tmp_path / file).unlink()
            with pytest.raises(IndexFormatError, match=f"cannot read the .*{file}"):
                VectorIndex.load(tmp_path, mapped=mapped)


def test_too_few_to_train_on_are_kept_exactly(name: str) -> None:
    """As in the small segments that adding makes."""
    for num in (0, 1, 7):
        ids = np.arange(num, dtype=np.int64)
        index = VectorIndex.build(ids, clustered(num, 15), CASES[name].settings)
        hits = index.search(clustered(2, 16), 3)
        assert {*hits.ids.ravel().tolist()} - {MISSING_ID} <= {*ids.tolist()}
        assert (hits.ids >= 0).sum() == 2 * min(3, num)
