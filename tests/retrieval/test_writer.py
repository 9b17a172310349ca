"""What a writer publishes: all of its changes or none, and never more work than the changes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specrag.errors import ConfigError, InputError
from specrag.retrieval.build import open_writer
from specrag.retrieval.check import check_index
from specrag.retrieval.document import Document
from specrag.retrieval.document_index import DocumentIndex
from specrag.retrieval.encoder import HashingEncoder, Vectors
from specrag.retrieval.layout import ENCODINGS_NAME
from specrag.retrieval.recipe import IndexRecipe
from specrag.retrieval.writer import IndexWriter


class CountingEncoder(HashingEncoder):
    """Counts the texts that it encodes, and stops when told to."""

    def __init__(self) -> None:
        super().__init__(16)
        self.num_encoded = 0
        self.stops_after: int | None = None

    def encode_documents(self, texts: Sequence[str], *, progress: bool = False) -> Vectors:
        if self.stops_after is not None and self.num_encoded >= self.stops_after:
            raise KeyboardInterrupt
        self.num_encoded += len(texts)
        return super().encode_documents(texts, progress=progress)


RECIPE = IndexRecipe("small", Path("nowhere"), "hashing", chunk_size=20, chunk_overlap=5)
ENCODER = HashingEncoder(16)


def writing(path: Path, **options: object) -> AbstractContextManager[IndexWriter]:
    return open_writer(RECIPE, ENCODER, path, **options)  # type: ignore[arg-type]


def note(key: str, text: str | None = None) -> Document:
    return Document(key, text or f"The note {key} says something.", f"/notes/{key}")


def contents(path: Path) -> dict[str, str]:
    with DocumentIndex.open(path) as index:
        assert index.manifest.num_documents == len(index.documents())
        assert index.num_passages == len(list(index.passages()))
        return {info.id: index.document(info.id).text for info in index.documents()}


def test_changes_are_published_together(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        assert writer.put(note("a"))
        assert writer.put(note("b"))
        assert writer.num_documents == 2
        writer.commit()
    with writing(tmp_path) as writer:
        writer.put(note("a", "New words."))
        assert writer.remove("b") == ["b"]
        writer.put(note("c"))
        assert contents(tmp_path) == {"a": note("a").text, "b": note("b").text}
        writer.commit()
    assert contents(tmp_path) == {"a": "New words.", "c": note("c").text}


def test_what_is_not_committed_is_discarded(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        writer.put(note("a"))
        writer.commit()
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with writing(tmp_path) as writer:
        writer.put(note("b"))
        writer.remove("a")
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
    assert contents(tmp_path) == {"a": note("a").text}


def test_the_same_document_changes_nothing(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        writer.put(note("a"))
        first = writer.commit()
    with writing(tmp_path) as writer:
        assert not writer.put(note("a"))
        assert not writer.has_changed
        assert writer.commit() == first


def test_a_document_that_was_removed_can_be_put_again(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        writer.put(note("a"))
        writer.commit()
    with writing(tmp_path) as writer:
        writer.remove("a")
        assert writer.find_id("a") is None
        assert writer.put(note("a"))
        writer.commit()
    assert contents(tmp_path) == {"a": note("a").text}
    assert check_index(tmp_path).is_sound


def test_documents_are_removed_by_id_and_by_path(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        for key in "abc":
            writer.put(note(key))
        writer.commit()
    with writing(tmp_path) as writer:
        assert writer.remove("a", "/notes/c") == ["a", "c"]
        with pytest.raises(InputError, match="no document of 'small' has the id or the path 'c'"):
            writer.remove("b", "c")
        writer.put(note("d"))
        with pytest.raises(InputError, match="'d' was put but not committed"):
            writer.remove("d")
        writer.commit()
    assert set(contents(tmp_path)) == {"b", "d"}


def test_what_cannot_be_put_leaves_the_rest(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        writer.put(note("a"))
        for bad, message in (
            (note("a", "Other."), "the id 'a' of '/notes/a' is taken by '/notes/a'"),
            (note("b", " \n"), "'b' holds no text"),
            (note("c", "\ud800"), "cannot store the document 'c'"),
        ):
            with pytest.raises(InputError, match=message):
                writer.put(bad)
        writer.commit()
    assert contents(tmp_path) == {"a": note("a").text}


def test_removed_text_is_gone_from_the_disk_after_compaction(tmp_path: Path) -> None:
    secret = "xylophone-4711"
    with writing(tmp_path) as writer:
        for key in "abcde":
            writer.put(note(key))
        writer.put(note("s", f"The password is {secret}."))
        writer.commit()
    for _ in range(2):  # the generation before the last is kept for its readers
        with writing(tmp_path) as writer:
            if writer.find_id("s"):
                writer.remove("s")
            writer.commit(compact=True)
    held = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in held if secret.encode() in path.read_bytes()]
    assert set(contents(tmp_path)) == set("abcde")


def test_passages_keep_their_ids_when_segments_are_merged(tmp_path: Path) -> None:
    found: dict[int, str] = {}
    for number in range(20):
        with writing(tmp_path) as writer:
            writer.put(note(f"{number}", f"Number {number} is one of many numbers."))
            writer.commit()
        with DocumentIndex.open(tmp_path) as index:
            found |= {one.id: one.text for one in index.passages() if one.id not in found}
    with DocumentIndex.open(tmp_path) as index:
        assert {one.id: one.text for one in index.passages()} == found
        assert len(index.segments) < 20
        texts = [found[key] for key in sorted(found)]
        np.testing.assert_array_equal(
            index.vectors_of(sorted(found)), ENCODER.encode_documents(texts)
        )
    assert check_index(tmp_path).is_sound


def test_texts_are_encoded_once(tmp_path: Path) -> None:
    encoder = CountingEncoder()
    with open_writer(RECIPE, encoder, tmp_path) as writer:
        writer.put(note("a", "The same words."))
        writer.put(note("b", "The same words."))
        writer.commit()
    assert encoder.num_encoded == 1
    with open_writer(RECIPE, encoder, tmp_path) as writer:
        writer.put(note("c", "The same words."))
        writer.put(note("d", "Other words."))
        writer.commit()
    assert (encoder.num_encoded, writer.num_encoded) == (2, 1)


def test_a_writer_that_was_stopped_does_not_lose_its_vectors(tmp_path: Path) -> None:
    encoder = CountingEncoder()
    encoder.stops_after = 1024
    documents = [note(f"{number}", f"Text number {number}.") for number in range(1500)]

    def write() -> None:
        with open_writer(RECIPE, encoder, tmp_path) as writer:
            for document in documents:
                writer.put(document)
            writer.commit()

    with pytest.raises(KeyboardInterrupt):
        write()
    assert (tmp_path / ENCODINGS_NAME).exists()
    encoder.stops_after = None
    write()
    assert encoder.num_encoded == 1500
    assert not (tmp_path / ENCODINGS_NAME).exists()
    assert len(contents(tmp_path)) == 1500


def test_a_large_index_is_split_over_segments(tmp_path: Path) -> None:
    from specrag.retrieval.build import origin_of

    origin = origin_of(RECIPE, ENCODER)
    with IndexWriter.open(tmp_path, "small", ENCODER, origin, segment_passages=10) as writer:
        for number in range(35):
            writer.put(note(f"{number}", f"Text number {number}."))
        generation = writer.commit()
    assert [one.num_passages for one in generation.manifest.segments] == [10, 10, 10, 5]
    with DocumentIndex.open(tmp_path) as index:
        query = ENCODER.encode_queries(["Text number 17."])
        (score, number), *_ = index.search_vectors(query, 5)
        assert index.get([number])[0].document == "17"
        assert score == pytest.approx(1.0)
        everything = index.search_vectors(query, 35)
        assert everything == sorted(everything, key=lambda hit: (-hit[0], hit[1]))
        assert len(everything) == 35


def test_too_few_passages_for_a_factory_are_told_before_they_are_encoded(tmp_path: Path) -> None:
    encoder = CountingEncoder()
    recipe = replace(RECIPE, vectors="SQ8")

    def write(num_documents: int) -> None:
        with open_writer(recipe, encoder, tmp_path) as writer:
            for number in range(num_documents):
                writer.put(note(f"{number}", f"Text number {number}."))
            writer.commit()

    with pytest.raises(ConfigError, match="'SQ8' needs at least 16 vectors to train on, got 15"):
        write(15)
    assert encoder.num_encoded == 0
    write(16)
    assert [path.name for path in tmp_path.rglob("vectors.exact.npy")]  # really compressed
    with open_writer(recipe, encoder, tmp_path) as writer:  # one more is a small segment
        writer.put(note("more"))
        writer.commit()
    assert len(contents(tmp_path)) == 17


def test_another_origin_begins_anew_and_takes_vectors_over(tmp_path: Path) -> None:
    encoder = CountingEncoder()
    with open_writer(RECIPE, encoder, tmp_path) as writer:
        writer.put(note("a"))
        writer.commit()
    larger = IndexRecipe("small", Path("nowhere"), "hashing", chunk_size=30, chunk_overlap=5)
    with open_writer(larger, encoder, tmp_path) as writer:
        assert writer.base is None
        assert writer.previous is not None
        writer.put(note("a"))
        writer.commit()
    assert encoder.num_encoded == 1


@pytest.mark.parametrize("name", ["vectors.faiss", "passages.sqlite"])
def test_vectors_of_a_damaged_index_are_not_taken_over(tmp_path: Path, name: str) -> None:
    encoder = CountingEncoder()
    with open_writer(RECIPE, encoder, tmp_path) as writer:
        writer.put(note("a"))
        generation = writer.commit()
    path = generation.segment_path(generation.manifest.segments[0]) / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with open_writer(RECIPE, encoder, tmp_path, fresh=True) as writer:
        writer.put(note("a"))
        writer.commit()
    assert encoder.num_encoded == 2
    assert check_index(tmp_path).is_sound


Change = tuple[str, int, int]


@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from(["put", "remove"]), st.integers(0, 5), st.integers(0, 3)),
            max_size=6,
        ),
        max_size=6,
    ),
    st.booleans(),
)
def test_an_index_holds_what_a_dictionary_would(
    tmp_path_factory: pytest.TempPathFactory, sessions: list[list[Change]], compact: bool
) -> None:
    path = tmp_path_factory.mktemp("index")
    expected: dict[str, str] = {"always": note("always").text}
    with writing(path) as writer:
        writer.put(note("always"))
        writer.commit()
    for changes in sessions:
        fresh: set[str] = set()
        with writing(path) as writer:
            for what, number, version in changes:
                key = f"{number}"
                if key in fresh:
                    continue
                if what == "put":
                    if writer.put(note(key, f"Version {version} of {key}.")):
                        fresh.add(key)
                    expected[key] = f"Version {version} of {key}."
                elif key in expected:
                    writer.remove(key)
                    del expected[key]
            assert writer.num_documents == len(expected)
            writer.commit(compact=compact)
    assert contents(path) == expected
    assert check_index(path).problems == ()
    with DocumentIndex.open(path) as index, writing(path / "direct") as writer:
        for key, text in expected.items():
            writer.put(note(key, text))
        direct = writer.commit().manifest
        assert index.manifest.index_version == direct.index_version
        for query in ("Version 2 of 3.", "something"):
            assert _found(index, query) == _found_in(path / "direct", query)


def _found_in(path: Path, query: str) -> list[tuple[str, float]]:
    with DocumentIndex.open(path) as index:
        return _found(index, query)


def _found(index: DocumentIndex, query: str) -> list[tuple[str, float]]:
    hits = index.search_vectors(ENCODER.encode_queries([query]), 20)
    named = [(index.get([number])[0].document, round(score, 5)) for score, number in hits]
    return sorted(named, key=lambda hit: (-hit[1], hit[0]))
