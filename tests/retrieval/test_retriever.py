from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specrag.errors import IndexFormatError
from specrag.retrieval.build import build_index
from specrag.retrieval.document import Document, Passage
from specrag.retrieval.encoder import HashingEncoder
from specrag.retrieval.generation import current_generation
from specrag.retrieval.layout import (
    CURRENT_NAME,
    MANIFEST_NAME,
    PASSAGES_NAME,
    VECTORS_NAME,
    Manifest,
)
from specrag.retrieval.recipe import IndexRecipe
from specrag.retrieval.retriever import DenseRetriever, open_index
from specrag.retrieval.store import PassageStore
from specrag.retrieval.vector_index import VectorIndex

FILES = [CURRENT_NAME, f"gen-000001/{MANIFEST_NAME}", f"gen-000001/{VECTORS_NAME}"]
FILES.append(f"gen-000001/{PASSAGES_NAME}")


@pytest.fixture
def index_path(recipe: IndexRecipe, encoder: HashingEncoder, destination: Path) -> Path:
    build_index(recipe, encoder, destination)
    return destination


@pytest.fixture
def retriever(index_path: Path, encoder: HashingEncoder) -> Iterator[DenseRetriever]:
    retriever = open_index(index_path, encoder)
    yield retriever
    retriever.close()


def test_scores_are_the_inner_products(retriever: DenseRetriever) -> None:
    query = "the acceptance of the draft"
    found = retriever.retrieve(query, 100)
    vectors = retriever.encoder.encode_documents([entry.passage.text for entry in found])
    products = vectors @ retriever.encoder.encode_queries([query])[0]
    np.testing.assert_allclose([entry.score for entry in found], products, atol=1e-6)


def test_the_manifest_names_it(retriever: DenseRetriever, index_path: Path) -> None:
    manifest = current_generation(index_path).manifest
    assert (retriever.name, retriever.index_version) == ("small", manifest.index_version)


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"created_at": "later", "files": {}, "specrag_version": "9"}, True),
        ({"corpus_fingerprint": "other"}, False),
        ({"splitter_version": 9}, False),
        ({"chunk_size": 9}, False),
        ({"chunk_overlap": 9}, False),
    ],
)
def test_the_fingerprint_depends_on_what_was_indexed_and_how(
    retriever: DenseRetriever, changes: dict[str, Any], same: bool
) -> None:
    changed = dataclasses.replace(retriever.manifest, **changes)
    other = DenseRetriever(retriever.store, retriever.index, retriever.encoder, changed)
    assert (other.fingerprint == retriever.fingerprint) is same


def test_the_fingerprint_depends_on_the_encoder(retriever: DenseRetriever) -> None:
    encoder = HashingEncoder(64, max_tokens=9)
    other = DenseRetriever(retriever.store, retriever.index, encoder, retriever.manifest)
    assert other.fingerprint != retriever.fingerprint


def test_one_lookup_is_one_search(retriever: DenseRetriever) -> None:
    assert (retriever.num_lookups, retriever.index.num_searches) == (0, 0)
    retriever.retrieve("gate", 1)
    retriever.retrieve("gate", 2)
    assert (retriever.num_lookups, retriever.index.num_searches) == (2, 2)


def equal_passages(tmp_path: Path, ids: list[int], manifest: Manifest) -> DenseRetriever:
    encoder = HashingEncoder()
    store = PassageStore.create(tmp_path / "equal.sqlite")
    passages = [Passage(number, "a", "same", 0, 4) for number in ids]
    store.put(Document("a", "same", "a"), passages)
    index = VectorIndex.create(encoder.dimension)
    if ids:
        index.add(np.array(ids, dtype=np.int64), encoder.encode_documents(["same"] * len(ids)))
    return DenseRetriever(store, index, encoder, manifest)


def test_equal_scores_come_in_the_order_of_ids(index_path: Path, tmp_path: Path) -> None:
    manifest = current_generation(index_path).manifest
    retriever = equal_passages(tmp_path, [5, 3, 9, 1], manifest)
    assert [entry.passage.id for entry in retriever.retrieve("same", 4)] == [1, 3, 5, 9]
    retriever.close()


def test_an_empty_index_finds_nothing(index_path: Path, tmp_path: Path) -> None:
    retriever = equal_passages(tmp_path, [], current_generation(index_path).manifest)
    assert retriever.retrieve("same", 3) == []
    retriever.close()


def test_several_threads_may_retrieve(retriever: DenseRetriever) -> None:
    queries = ["gate", "draft tree", "目标模型", "entropy"]
    expected = [retriever.retrieve(query, 2) for query in queries]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda query: retriever.retrieve(query, 2), queries * 25))
    assert found == expected * 25
    assert retriever.num_lookups == 104


def test_plain_numbers_do_not_show_that_the_documents_know_a_question(
    encoder: HashingEncoder, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.md").write_text("# Zones\n\nThe ship has 12 decks and 7 masts.\n")
    build_index(IndexRecipe("ship", corpus, "any"), encoder, tmp_path / "index")
    opened = open_index(tmp_path / "index", encoder)

    assert opened.term_coverage("What is 12 + 7?") == 0.0
    assert opened.term_coverage("Has the ship 12 decks?") == 1.0
    assert opened.term_coverage("Why do 12 zebras gallop?") == 0.0
    assert opened.term_coverage("What is it about?") == 1.0  # asks for nothing in particular
    opened.close()


def test_a_read_only_index_can_be_opened(index_path: Path, encoder: HashingEncoder) -> None:
    before = sorted(path.name for path in index_path.rglob("*"))
    for path in [*index_path.rglob("*"), index_path]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    retriever = open_index(index_path, encoder)
    assert retriever.retrieve("gate", 1)
    retriever.close()
    assert sorted(path.name for path in index_path.rglob("*")) == before
    for path in [index_path, *index_path.rglob("*")]:
        path.chmod(0o755)


def test_an_index_may_be_moved(
    index_path: Path, tmp_path: Path, encoder: HashingEncoder, recipe: IndexRecipe
) -> None:
    shutil.move(index_path, tmp_path / "moved")
    shutil.rmtree(recipe.corpus)
    retriever = open_index(tmp_path / "moved", encoder)
    assert retriever.retrieve("gate", 1)[0].passage.document == "gate.md"
    retriever.close()


def refusal(index_path: Path, encoder: HashingEncoder) -> IndexFormatError:
    with pytest.raises(IndexFormatError) as caught:
        open_index(index_path, encoder)
    return caught.value


def test_a_missing_index_is_refused(tmp_path: Path, encoder: HashingEncoder) -> None:
    error = refusal(tmp_path / "handbook", encoder)
    assert "no index in" in error.message
    assert error.hint == "build it: specrag index build handbook"


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("keep", [0.0, 0.5, -1])
def test_a_truncated_file_is_refused(
    index_path: Path, encoder: HashingEncoder, name: str, keep: float
) -> None:
    data = (index_path / name).read_bytes()
    length = len(data) - 1 if keep < 0 else int(len(data) * keep)
    (index_path / name).write_bytes(data[:length])
    assert "specrag index build small --force" in str(refusal(index_path, encoder).hint)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("place", [0.0, 0.3, 0.6, 1.0])
@pytest.mark.parametrize("bit", [0, 7])
def test_a_flipped_bit_is_refused(
    index_path: Path, encoder: HashingEncoder, name: str, place: float, bit: int
) -> None:
    data = bytearray((index_path / name).read_bytes())
    data[int(place * (len(data) - 1))] ^= 1 << bit
    (index_path / name).write_bytes(data)
    assert "specrag index build small --force" in str(refusal(index_path, encoder).hint)


@pytest.mark.parametrize("name", FILES[1:])
def test_a_missing_file_is_refused(index_path: Path, encoder: HashingEncoder, name: str) -> None:
    (index_path / name).unlink()
    assert "specrag index build small --force" in str(refusal(index_path, encoder).hint)


@pytest.mark.parametrize("foreign", [HashingEncoder(32), HashingEncoder(64, max_tokens=100)])
def test_another_encoder_is_refused(index_path: Path, foreign: HashingEncoder) -> None:
    error = refusal(index_path, foreign)
    assert "was built with the encoder 'hashing-64'" in error.message
    assert foreign.fingerprint in error.message
    assert "use the encoder 'hashing-64', or build it again" in str(error.hint)


def test_the_encoder_is_not_run_when_an_index_is_opened(index_path: Path) -> None:
    class Unloaded(HashingEncoder):
        def encode_queries(self, texts: object) -> np.ndarray:
            raise AssertionError("the model was used")

    open_index(index_path, Unloaded()).close()


@pytest.mark.parametrize("part", ["store", "index"])
def test_parts_that_do_not_belong_together_are_refused(
    index_path: Path, encoder: HashingEncoder, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    # Their checksums hold, so only the numbers of passages can tell.
    if part == "store":
        monkeypatch.setattr(PassageStore, "count", lambda self: 1)
    else:
        monkeypatch.setattr(VectorIndex, "__len__", lambda self: 1)
    error = refusal(index_path, encoder)
    assert "should hold" in error.message
    assert "--force" in str(error.hint)
