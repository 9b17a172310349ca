from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specrag.errors import ConfigError, IndexFormatError, InputError
from specrag.retrieval.build import build_index, open_writer
from specrag.retrieval.document import Document
from specrag.retrieval.document_index import DocumentIndex
from specrag.retrieval.encoder import HashingEncoder
from specrag.retrieval.filters import Filter
from specrag.retrieval.generation import current_generation
from specrag.retrieval.layout import CURRENT_NAME, PASSAGES_NAME, TERMS_NAME, VECTORS_NAME
from specrag.retrieval.recipe import IndexRecipe
from specrag.retrieval.rerank import WordOverlapReranker
from specrag.retrieval.retriever import IndexRetriever, open_index
from specrag.retrieval.search_settings import SearchSettings
from specrag.retrieval.store import PassageStore
from specrag.retrieval.vector_index import VectorIndex

SEGMENT = "segments/seg-000001"
FILES = [CURRENT_NAME, "manifest-000001.json"]
FILES += [f"{SEGMENT}/{name}" for name in (VECTORS_NAME, PASSAGES_NAME, TERMS_NAME)]


@pytest.fixture
def index_path(recipe: IndexRecipe, encoder: HashingEncoder, destination: Path) -> Path:
    build_index(recipe, encoder, destination)
    return destination


@pytest.fixture
def retriever(index_path: Path, encoder: HashingEncoder) -> Iterator[IndexRetriever]:
    retriever = open_index(index_path, encoder)
    yield retriever
    retriever.close()


def test_scores_are_the_inner_products(retriever: IndexRetriever) -> None:
    query = "the acceptance of the draft"
    found = retriever.retrieve(query, 100)
    vectors = retriever.encoder.encode_documents([entry.passage.text for entry in found])
    products = vectors @ retriever.encoder.encode_queries([query])[0]
    np.testing.assert_allclose([entry.score for entry in found], products, atol=1e-6)


def test_the_manifest_names_it(retriever: IndexRetriever, index_path: Path) -> None:
    manifest = current_generation(index_path).manifest
    assert (retriever.name, retriever.index_version) == ("small", manifest.index_version)


def with_manifest(retriever: IndexRetriever, **changes: Any) -> IndexRetriever:
    generation = retriever.index.generation
    names = {field.name for field in dataclasses.fields(generation.manifest.origin)}
    inner = {key: value for key, value in changes.items() if key in names}
    outer = {key: value for key, value in changes.items() if key not in names}
    origin = dataclasses.replace(generation.manifest.origin, **inner)
    manifest = dataclasses.replace(generation.manifest, origin=origin, **outer)
    index = DocumentIndex(generation._replace(manifest=manifest), retriever.index.segments)
    return IndexRetriever(index, retriever.encoder, retriever.settings)


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"created_at": "later", "segments": (), "specrag_version": "9"}, True),
        ({"corpus_fingerprint": "other"}, False),
        ({"splitter_version": 9}, False),
        ({"chunk_size": 9}, False),
        ({"chunk_overlap": 9}, False),
    ],
)
def test_the_fingerprint_depends_on_what_was_indexed_and_how(
    retriever: IndexRetriever, changes: dict[str, Any], same: bool
) -> None:
    other = with_manifest(retriever, **changes)
    assert (other.fingerprint == retriever.fingerprint) is same


def test_the_fingerprint_depends_on_encoder_and_search(retriever: IndexRetriever) -> None:
    others = [
        IndexRetriever(retriever.index, HashingEncoder(64, max_tokens=9)),
        retriever.with_settings(SearchSettings("bm25")),
        retriever.with_settings(SearchSettings("hybrid")),
        retriever.with_settings(SearchSettings(diversity=0.5)),
        retriever.with_settings(SearchSettings(), WordOverlapReranker()),
        retriever.with_settings(SearchSettings(rerank_candidates=9), WordOverlapReranker()),
    ]
    found = {other.fingerprint for other in others}
    assert len(found - {retriever.fingerprint}) == len(others)


def test_one_lookup_is_one_search(retriever: IndexRetriever) -> None:
    assert (retriever.num_lookups, retriever.index.num_searches) == (0, 0)
    retriever.retrieve("gate", 1)
    retriever.retrieve("gate", 2)
    assert (retriever.num_lookups, retriever.index.num_searches) == (2, 2)


def test_equal_scores_come_in_the_order_of_ids(tmp_path: Path) -> None:
    encoder = HashingEncoder()
    recipe = IndexRecipe("same", Path("x"), "hashing")
    for keys in ("dc", "ba"):  # two segments
        with open_writer(recipe, encoder, tmp_path) as writer:
            for key in keys:
                writer.put(Document(key, "same", "s"))
            writer.commit()
    for mode in ("dense", "bm25", "hybrid"):
        opened = open_index(tmp_path, encoder, SearchSettings(mode))
        found = opened.retrieve("same", 4)
        assert [entry.passage.id for entry in found] == [0, 1, 2, 3]
        assert [entry.passage.document for entry in found] == ["d", "c", "b", "a"]
        opened.close()


def test_an_emptied_index_finds_nothing(
    index_path: Path, recipe: IndexRecipe, encoder: HashingEncoder
) -> None:
    with open_writer(recipe, encoder, index_path) as writer:
        writer.remove("gate.md", "tree.md", "notes/chinese.txt")
        writer.commit()
    for mode in ("dense", "bm25", "hybrid"):
        opened = open_index(index_path, encoder, SearchSettings(mode))
        assert opened.retrieve("gate", 3) == []
        opened.close()


def test_words_and_meaning_are_fused(index_path: Path, encoder: HashingEncoder) -> None:
    lists = []
    for mode in ("dense", "bm25"):
        opened = open_index(index_path, encoder, SearchSettings(mode))
        lists.append([one.passage.id for one in opened.retrieve("acceptance of the draft", 9)])
        opened.close()
    opened = open_index(index_path, encoder, SearchSettings("hybrid"))
    found = opened.retrieve("acceptance of the draft", 9)
    expected = {
        key: sum(1 / (60 + 1 + ids.index(key)) for ids in lists if key in ids)
        for key in {*lists[0], *lists[1]}
    }
    assert {one.passage.id: pytest.approx(one.score) for one in found} == expected
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    opened.close()


def test_filters_choose_documents(tmp_path: Path, encoder: HashingEncoder) -> None:
    recipe = IndexRecipe("years", Path("x"), "hashing")
    with open_writer(recipe, encoder, tmp_path) as writer:
        for year in range(2000, 2010):
            text = f"The report of the year {year}."
            writer.put(Document(f"{year}", text, "s", metadata={"year": year, "odd": year % 2}))
        writer.commit()
    for mode in ("dense", "bm25", "hybrid"):
        opened = open_index(tmp_path, encoder, SearchSettings(mode))
        found = opened.retrieve("report", 20, Filter.parse(["year>=2005", "odd=1"]))
        assert {one.passage.document for one in found} == {"2005", "2007", "2009"}
        assert opened.retrieve("report", 20, Filter.of({"year": 1})) == []
        with pytest.raises(InputError, match="yaer"):
            opened.retrieve("report", 20, Filter.of({"yaer": 2005}))
        opened.close()


def test_a_reranker_orders_the_candidates(retriever: IndexRetriever) -> None:
    query = "the acceptance of the draft"
    plain = retriever.retrieve(query, 9)
    reranker = WordOverlapReranker()
    ranked = retriever.with_settings(SearchSettings(), reranker).retrieve(query, 2)
    assert ranked == reranker.rerank(query, plain, 2)
    first = retriever.with_settings(SearchSettings(rerank_candidates=1), reranker)
    assert first.retrieve(query, 1)[0].passage == plain[0].passage


def test_diversity_leaves_out_what_repeats(tmp_path: Path, encoder: HashingEncoder) -> None:
    recipe = IndexRecipe("twice", Path("x"), "hashing")
    with open_writer(recipe, encoder, tmp_path) as writer:
        for key, text in (("a", "red green blue"), ("b", "red green blue"), ("c", "red pink")):
            writer.put(Document(key, text, "s"))
        writer.commit()
    opened = open_index(tmp_path, encoder)
    assert [one.passage.document for one in opened.retrieve("red green blue", 2)] == ["a", "b"]
    varied = opened.with_settings(SearchSettings(diversity=0.7))
    assert [one.passage.document for one in varied.retrieve("red green blue", 2)] == ["a", "c"]
    by_words = opened.with_settings(SearchSettings("bm25", diversity=0.7))
    assert [one.passage.document for one in by_words.retrieve("red green blue", 2)] == ["a", "c"]
    both = opened.with_settings(
        SearchSettings(rerank_candidates=2, diversity=0.7), WordOverlapReranker()
    )
    assert {one.passage.document for one in both.retrieve("red green blue", 2)} == {"a", "c"}
    opened.close()


def test_warming_up_loads_what_will_be_used(retriever: IndexRetriever) -> None:
    loaded: list[str] = []

    class Encoding(HashingEncoder):
        def warm_up(self) -> None:
            loaded.append("encoder")

    class Ranking(WordOverlapReranker):
        def warm_up(self) -> None:
            loaded.append("reranker")

    for settings, reranker in (
        (SearchSettings("bm25"), None),
        (SearchSettings("hybrid"), None),
        (SearchSettings("bm25", diversity=0.1), Ranking()),
    ):
        IndexRetriever(retriever.index, Encoding(), settings, reranker).warm_up()
    assert loaded == ["encoder", "encoder", "reranker"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "bm52"}, "unknown search mode 'bm52'; did you mean 'bm25'"),
        ({"rerank_candidates": 0}, "rerank_candidates must be at least 1, got 0"),
        ({"diversity": 1.5}, "diversity must be from 0 to 1, got 1.5"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SearchSettings(**settings)


def test_several_threads_may_retrieve(retriever: IndexRetriever) -> None:
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
