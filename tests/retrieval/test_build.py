from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from specrag.errors import ConfigError, IndexFormatError, InputError
from specrag.retrieval.build import build_from_documents, build_index
from specrag.retrieval.builder_lock import builder_lock
from specrag.retrieval.document import Document
from specrag.retrieval.document_index import DocumentIndex
from specrag.retrieval.encoder import HashingEncoder, Vectors
from specrag.retrieval.generation import current_generation
from specrag.retrieval.layout import (
    CURRENT_NAME,
    PASSAGES_NAME,
    SEGMENTS_NAME,
    TERMS_NAME,
    VECTORS_NAME,
)
from specrag.retrieval.recipe import IndexRecipe
from specrag.retrieval.retriever import open_index
from tests.retrieval.conftest import CORPUS


class CountingEncoder(HashingEncoder):
    """Counts how many texts it encoded, and fails when told to."""

    num_encoded = 0
    failure: BaseException | None = None

    def encode_documents(self, texts: Sequence[str], *, progress: bool = False) -> Vectors:
        if self.failure is not None:
            raise self.failure
        self.num_encoded += len(texts)
        return super().encode_documents(texts, progress=progress)


def folders(destination: Path) -> list[str]:
    return sorted(path.name for path in destination.iterdir())


def test_what_was_built_can_be_read(
    recipe: IndexRecipe, encoder: HashingEncoder, destination: Path
) -> None:
    report = build_index(recipe, encoder, destination)
    assert (report.num_documents, report.failures, report.built) == (3, (), True)
    assert report.path == destination
    manifest = current_generation(destination).manifest
    assert report.index_version == manifest.index_version
    made_from = manifest.origin
    assert (manifest.name, made_from.encoder, made_from.dimension) == ("small", "hashing-64", 64)
    assert (made_from.chunk_size, made_from.chunk_overlap) == (20, 5)
    with DocumentIndex.open(destination) as index:
        assert [info.id for info in index.documents()] == [
            "gate.md",
            "notes/chinese.txt",
            "tree.md",
        ]
        passages = list(index.passages())
        assert len(passages) == report.num_passages == manifest.num_passages
        assert index.get([one.id for one in passages]) == passages
        for passage in passages:
            text = index.document(passage.document).text
            assert text[passage.start : passage.end] == passage.text
        vectors = encoder.encode_documents([passage.text for passage in passages])
        np.testing.assert_array_equal(index.vectors_of([one.id for one in passages]), vectors)
        for passage, vector in zip(passages, vectors, strict=True):
            (score, number), *_ = index.search_vectors(vector[None], 1)
            assert number == passage.id
            assert score == pytest.approx(1.0)


def test_line_ends_do_not_shift_offsets(
    recipe: IndexRecipe, encoder: HashingEncoder, destination: Path
) -> None:
    build_index(recipe, encoder, destination)
    raw = (recipe.corpus / "tree.md").read_bytes().decode()
    assert "\r\n" in raw
    with DocumentIndex.open(destination) as index:
        found = [p for p in index.passages() if p.document == "tree.md"]
    assert [raw[p.start : p.end] for p in found] == [p.text for p in found]
    assert found


def test_nothing_is_encoded_when_nothing_has_changed(
    recipe: IndexRecipe, destination: Path
) -> None:
    encoder = CountingEncoder()
    first = build_index(recipe, encoder, destination)
    assert encoder.num_encoded == first.num_passages
    encoder.failure = AssertionError("the model was used")
    second = build_index(recipe, encoder, destination)
    assert (second.built, second.path, second.index_version) == (
        False,
        first.path,
        first.index_version,
    )


def test_force_writes_anew_to_the_same_version(recipe: IndexRecipe, destination: Path) -> None:
    encoder = CountingEncoder()
    first = build_index(recipe, encoder, destination)
    second = build_index(recipe, encoder, destination, force=True)
    assert second.built
    assert current_generation(destination).number == 2
    assert second.index_version == first.index_version
    assert encoder.num_encoded == first.num_passages  # vectors of sound files are taken over


@pytest.mark.parametrize(
    "changes", [{"chunk_size": 30}, {"chunk_overlap": 4}, {"patterns": ("*.md",)}, {"name": "b"}]
)
def test_a_changed_recipe_is_built_again(
    recipe: IndexRecipe, encoder: HashingEncoder, destination: Path, changes: dict[str, object]
) -> None:
    first = build_index(recipe, encoder, destination)
    changed = dataclasses.replace(recipe, **changes)  # type: ignore[arg-type]
    second = build_index(changed, encoder, destination)
    assert second.built
    assert second.index_version != first.index_version


def test_a_changed_description_is_not(
    recipe: IndexRecipe, encoder: HashingEncoder, destination: Path
) -> None:
    build_index(recipe, encoder, destination)
    changed = dataclasses.replace(recipe, description="other words")
    assert not build_index(changed, encoder, destination).built


@pytest.mark.parametrize("change", ["edit", "add", "remove", "rename"])
def test_a_changed_corpus_is_built_again(
    recipe: IndexRecipe, encoder: HashingEncoder, destination: Path, change: str
) -> None:
    build_index(recipe, encoder, destination)
    path = recipe.corpus / "gate.md"
    if change == "edit":
        path.write_text(path.read_text().replace("entropy", "surprise"))
    elif change == "add":
        (recipe.corpus / "new.md").write_text("New.")
    elif change == "remove":
        path.unlink()
    else:
        path.rename(recipe.corpus / "door.md")
    assert build_index(recipe, encoder, destination).built


def test_another_encoder_is_built_for(recipe: IndexRecipe, destination: Path) -> None:
    build_index(recipe, HashingEncoder(64), destination)
    assert build_index(recipe, HashingEncoder(32), destination).built
    assert open_index(destination, HashingEncoder(32)).index.manifest.origin.dimension == 32


@pytest.mark.parametrize("name", [VECTORS_NAME, PASSAGES_NAME, TERMS_NAME, "manifest-000001.json"])
def test_a_damaged_index_is_built_again_without_force(
    recipe: IndexRecipe, encoder: HashingEncoder, destination: Path, name: str
) -> None:
    build_index(recipe, encoder, destination)
    (path,) = destination.rglob(name)
    path.write_bytes(path.read_bytes()[:-1])
    report = build_index(recipe, encoder, destination)
    assert report.built
    open_index(destination, encoder).close()


def test_the_last_generation_stays_for_its_readers(
    recipe: IndexRecipe, encoder: HashingEncoder, destination: Path
) -> None:
    for _ in range(3):
        build_index(recipe, encoder, destination, force=True)
    assert folders(destination) == [
        ".lock", CURRENT_NAME, "manifest-000002.json", "manifest-000003.json", SEGMENTS_NAME,
    ]  # fmt: skip
    assert folders(destination / SEGMENTS_NAME) == ["seg-000002", "seg-000003"]


def test_a_reader_is_not_disturbed_by_a_build(
    recipe: IndexRecipe, encoder: HashingEncoder, destination: Path
) -> None:
    build_index(recipe, encoder, destination)
    retriever = open_index(destination, encoder)
    before = retriever.retrieve("the entropy of the draft", 3)
    (recipe.corpus / "gate.md").write_text("Nothing of it is left.")
    build_index(recipe, encoder, destination)
    assert retriever.retrieve("the entropy of the draft", 3) == before
    retriever.close()


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), RuntimeError("out of memory")])
def test_a_failed_build_leaves_the_index_as_it_was(
    recipe: IndexRecipe, destination: Path, failure: BaseException
) -> None:
    encoder = CountingEncoder()
    first = build_index(recipe, encoder, destination)
    before = folders(destination)
    encoder.failure = failure
    (recipe.corpus / "gate.md").write_text("Words that are new.")
    with pytest.raises(type(failure)):
        build_index(recipe, encoder, destination, force=True)
    assert folders(destination) == before
    retriever = open_index(destination, encoder)
    assert retriever.index_version == first.index_version
    retriever.close()


_BLOCK_WHILE_ENCODING = """
import pathlib, sys, time
from specrag.retrieval.build import build_index
from specrag.retrieval.encoder import HashingEncoder
from specrag.retrieval.recipe import IndexRecipe

class Blocking(HashingEncoder):
    def encode_documents(self, texts, *, progress=False):
        print("encoding", flush=True)
        time.sleep(60)

recipe = IndexRecipe("small", pathlib.Path(sys.argv[1]), "hashing", chunk_size=20, chunk_overlap=5)
build_index(recipe, Blocking(), pathlib.Path(sys.argv[2]), force=True)
"""


def test_a_killed_build_leaves_the_index_usable(
    recipe: IndexRecipe, encoder: HashingEncoder, destination: Path
) -> None:
    first = build_index(recipe, encoder, destination)
    recipe.corpus.joinpath("gate.md").write_text("Words that are new.")
    with subprocess.Popen(
        [sys.executable, "-c", _BLOCK_WHILE_ENCODING, str(recipe.corpus), str(destination)],
        stdout=subprocess.PIPE,
        text=True,
    ) as builder:
        assert builder.stdout is not None
        assert builder.stdout.readline() == "encoding\n"
        with pytest.raises(InputError, match="another process is building"):
            build_index(recipe, encoder, destination)
        builder.send_signal(signal.SIGKILL)
    recipe.corpus.joinpath("gate.md").write_text(CORPUS["gate.md"])
    assert [name for name in folders(destination) if name.startswith(".building-")]
    retriever = open_index(destination, encoder)
    assert retriever.index_version == first.index_version
    assert retriever.retrieve("the entropy of the draft", 1)[0].passage.document == "gate.md"
    retriever.close()

    build_index(recipe, encoder, destination, force=True)
    assert folders(destination) == [
        ".lock", CURRENT_NAME, "manifest-000001.json", "manifest-000002.json", SEGMENTS_NAME,
    ]  # fmt: skip


def test_two_builders_do_not_collide(
    recipe: IndexRecipe, encoder: HashingEncoder, destination: Path
) -> None:
    with builder_lock(destination), pytest.raises(InputError, match="another process is building"):
        build_index(recipe, encoder, destination)
    with pytest.raises(IndexFormatError, match="no index in"):
        current_generation(destination)


def test_files_that_cannot_be_used_are_reported(
    recipe: IndexRecipe, encoder: HashingEncoder, destination: Path
) -> None:
    (recipe.corpus / "bad.txt").write_bytes(b"\0\1" * 40)
    report = build_index(recipe, encoder, destination)
    assert [failure.path.name for failure in report.failures] == ["bad.txt"]
    again = build_index(recipe, encoder, destination)
    assert (again.built, again.failures) == (False, report.failures)


def test_a_corpus_without_usable_files_is_refused(
    encoder: HashingEncoder, tmp_path: Path, destination: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "bad.txt").write_bytes(b"\0\1" * 40)
    (tmp_path / "data" / "blank.txt").write_text(" \n")
    recipe = IndexRecipe("small", tmp_path / "data", "hashing")
    with pytest.raises(InputError, match="none of the 2 files .*bad.txt: is binary.*holds no text"):
        build_index(recipe, encoder, destination)
    with pytest.raises(IndexFormatError, match="no index in"):
        current_generation(destination)


def test_passages_that_the_encoder_would_cut_off_are_refused(
    recipe: IndexRecipe, destination: Path
) -> None:
    with pytest.raises(ConfigError, match="chunk_size is 20 tokens, .* at most 19") as caught:
        build_index(recipe, HashingEncoder(max_tokens=19), destination)
    assert caught.value.hint == "set chunk_size to 19 or less"


@pytest.mark.parametrize("progress", [True, False])
def test_progress_is_shown_when_asked_for(
    recipe: IndexRecipe,
    encoder: HashingEncoder,
    destination: Path,
    capsys: pytest.CaptureFixture[str],
    progress: bool,
) -> None:
    build_index(recipe, encoder, destination, progress=progress)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert ("reading" in shown.err, "encoding" in shown.err) == (progress, progress)


def test_the_version_tells_texts_from_ids_and_not_their_order_or_place(
    recipe: IndexRecipe, encoder: HashingEncoder, tmp_path: Path
) -> None:
    def version(*documents: Document) -> str:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        return build_from_documents(documents, recipe, encoder, path).index_version

    one, two = Document("a", "b c", "s"), Document("d", "e", "s")
    different = [
        version(one),
        version(Document("a b", "c", "s")),
        version(one, two),
        version(Document("a", "e", "s"), Document("d", "b c", "s")),
    ]
    assert len(set(different)) == len(different)
    assert version(two, one) == different[2]
    assert version(Document("a", "b c", "elsewhere", title="t")) == different[0]


def test_documents_at_hand_replace_those_before(
    recipe: IndexRecipe, encoder: HashingEncoder, destination: Path
) -> None:
    one, two = Document("a", "First text.", "s"), Document("b", "Second text.", "s")
    build_from_documents([one, two], recipe, encoder, destination)
    report = build_from_documents([two], recipe, encoder, destination)
    assert (report.changes.removed, report.changes.num_unchanged) == (["a"], 1)
    assert not build_from_documents([two], recipe, encoder, destination).built
    with pytest.raises(InputError, match="no document to index"):
        build_from_documents([], recipe, encoder, destination)
