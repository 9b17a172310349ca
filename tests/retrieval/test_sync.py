"""An index follows its files: what is added, changed, moved, removed or cannot be read."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from specrag.errors import InputError
from specrag.retrieval.build import BuildReport, build_index, open_writer
from specrag.retrieval.document import Document
from specrag.retrieval.document_index import DocumentIndex
from specrag.retrieval.encoder import HashingEncoder
from specrag.retrieval.recipe import IndexRecipe
from specrag.retrieval.sync import SyncReport, added_root, remove_named, sync

ENCODER = HashingEncoder()
LONG_AGO = 1_000_000_000


@pytest.fixture
def old(corpus: Path) -> None:
    """Files that were last changed long ago."""
    for path in corpus.rglob("*.*"):
        os.utime(path, (LONG_AGO, LONG_AGO))


def build(recipe: IndexRecipe, destination: Path) -> BuildReport:
    return build_index(recipe, ENCODER, destination)


def add(recipe: IndexRecipe, destination: Path, *paths: Path) -> SyncReport:
    with open_writer(recipe, ENCODER, destination) as writer:
        report = sync(writer, [added_root(path) for path in paths])
        writer.roots += tuple(str(path.resolve()) for path in paths)
        writer.commit()
    return report


def remove(recipe: IndexRecipe, destination: Path, *names: str) -> list[str]:
    with open_writer(recipe, ENCODER, destination) as writer:
        gone = remove_named(writer, names)
        writer.commit()
    return gone


def ids(destination: Path) -> set[str]:
    with DocumentIndex.open(destination) as index:
        return {info.id for info in index.documents()}


@pytest.mark.usefixtures("old")
def test_unchanged_files_are_not_read(recipe: IndexRecipe, destination: Path) -> None:
    first = build(recipe, destination)
    assert (len(first.changes.added), first.changes.num_read) == (3, 3)
    second = build(recipe, destination)
    assert (second.changes.num_read, second.changes.num_unchanged, second.built) == (0, 3, False)


@pytest.mark.usefixtures("old")
def test_touched_files_are_read_and_not_encoded(
    recipe: IndexRecipe, corpus: Path, destination: Path
) -> None:
    build(recipe, destination)
    (corpus / "gate.md").touch()
    report = build(recipe, destination)
    assert (report.changes.num_read, report.num_encoded, report.built) == (1, 0, False)


def test_a_file_changed_within_its_time_stamp_is_noticed(
    recipe: IndexRecipe, corpus: Path, destination: Path
) -> None:
    path = corpus / "tree.md"
    build(recipe, destination)
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"merges", b"mingle"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert build(recipe, destination).changes.updated == ["tree.md"]


@pytest.mark.usefixtures("old")
def test_each_kind_of_change_is_told(recipe: IndexRecipe, corpus: Path, destination: Path) -> None:
    build(recipe, destination)
    (corpus / "gate.md").write_text("Everything is new here.")
    (corpus / "tree.md").rename(corpus / "forest.md")
    (corpus / "notes" / "chinese.txt").unlink()
    report = build(recipe, destination)
    assert report.changes.added == ["forest.md"]
    assert report.changes.updated == ["gate.md"]
    assert sorted(report.changes.removed) == ["notes/chinese.txt", "tree.md"]
    assert report.num_encoded == 1  # a file that was moved has its vectors already
    assert ids(destination) == {"forest.md", "gate.md"}


def test_a_file_that_cannot_be_read_any_more_keeps_its_documents(
    recipe: IndexRecipe, corpus: Path, destination: Path
) -> None:
    build(recipe, destination)
    (corpus / "gate.md").write_bytes(b"\x00\x01\x02" * 50)
    report = build(recipe, destination)
    assert [failure.path.name for failure in report.failures] == ["gate.md"]
    assert report.changes.removed == []
    assert "gate.md" in ids(destination)


def test_a_corpus_that_is_not_there_loses_nothing(
    recipe: IndexRecipe, corpus: Path, destination: Path
) -> None:
    build(recipe, destination)
    corpus.rename(corpus.with_name("elsewhere"))
    with pytest.raises(InputError, match="no such file or folder"):
        build(recipe, destination)
    assert len(ids(destination)) == 3


def test_strict_stops_at_the_first_failure(
    recipe: IndexRecipe, corpus: Path, destination: Path
) -> None:
    build(recipe, destination)
    (corpus / "bad.txt").write_bytes(b"\x00\x01\x02" * 50)
    (corpus / "new.txt").write_text("New.")
    with pytest.raises(InputError, match="bad.txt: is binary"):
        build_index(recipe, ENCODER, destination, strict=True)
    assert "new.txt" not in ids(destination)


def test_a_folder_is_added_and_followed(
    recipe: IndexRecipe, destination: Path, tmp_path: Path
) -> None:
    build(recipe, destination)
    more = tmp_path / "more"
    more.mkdir()
    (more / "a.md").write_text("Added words.")
    assert add(recipe, destination, more).added == ["more/a.md"]
    (more / "b.md").write_text("Further words.")
    (more / "a.md").unlink()
    report = build(recipe, destination)
    assert (report.changes.added, report.changes.removed) == (["more/b.md"], ["more/a.md"])
    assert ids(destination) == {"gate.md", "tree.md", "notes/chinese.txt", "more/b.md"}


def test_an_added_folder_that_is_not_there_today_keeps_its_documents(
    recipe: IndexRecipe, destination: Path, tmp_path: Path
) -> None:
    build(recipe, destination)
    more = tmp_path / "more"
    more.mkdir()
    (more / "a.md").write_text("Added words.")
    add(recipe, destination, more)
    more.rename(tmp_path / "unplugged")
    report = build(recipe, destination)
    assert [failure.path for failure in report.failures] == [more]
    assert "more/a.md" in ids(destination)


@pytest.mark.parametrize("force", [True, False])
def test_what_cannot_be_read_today_outlives_an_index_begun_anew(
    recipe: IndexRecipe, corpus: Path, destination: Path, tmp_path: Path, force: bool
) -> None:
    build(recipe, destination)
    more = tmp_path / "more"
    more.mkdir()
    (more / "a.md").write_text("Added words.")
    add(recipe, destination, more)
    more.rename(tmp_path / "unplugged")
    (corpus / "gate.md").write_bytes(b"\0\1" * 40)
    (corpus / "tree.md").unlink()
    other = recipe if force else replace(recipe, chunk_size=10)
    report = build_index(other, ENCODER, destination, force=force)
    assert len(report.failures) == 2
    assert ids(destination) == {"gate.md", "notes/chinese.txt", "more/a.md"}
    (tmp_path / "unplugged").rename(more)
    (more / "a.md").write_text("Other words.")
    assert build(other, destination).changes.updated == ["more/a.md"]


def test_an_added_folder_is_removed_by_its_path(
    recipe: IndexRecipe, destination: Path, tmp_path: Path
) -> None:
    build(recipe, destination)
    more = tmp_path / "more"
    more.mkdir()
    (more / "a.md").write_text("Added words.")
    add(recipe, destination, more)
    assert remove(recipe, destination, str(more)) == ["more/a.md"]
    build(recipe, destination)
    assert ids(destination) == {"gate.md", "tree.md", "notes/chinese.txt"}


def test_a_removed_document_stays_away_while_its_file_is_there(
    recipe: IndexRecipe, corpus: Path, destination: Path
) -> None:
    build(recipe, destination)
    assert remove(recipe, destination, str(corpus / "gate.md")) == ["gate.md"]
    (corpus / "gate.md").write_text("Changed since then.")
    for force in (False, True):
        build_index(recipe, ENCODER, destination, force=force)
        assert ids(destination) == {"tree.md", "notes/chinese.txt"}
    with pytest.raises(InputError, match="no document of 'small' has the id or the path 'gate.md'"):
        remove(recipe, destination, "gate.md")


def test_documents_without_files_survive_every_sync(recipe: IndexRecipe, destination: Path) -> None:
    build(recipe, destination)
    with open_writer(recipe, ENCODER, destination) as writer:
        writer.put(Document("made", "Made by a program.", "program", metadata={"year": 2020}))
        writer.commit()
    smaller = IndexRecipe("small", recipe.corpus, "hashing", chunk_size=10, chunk_overlap=2)
    for changed in (recipe, smaller):
        build(changed, destination)
        with DocumentIndex.open(destination) as index:
            assert index.document("made").metadata == {"year": 2020}
    build_index(smaller, ENCODER, destination, force=True)
    assert "made" in ids(destination)


def test_two_files_with_one_id_are_told(
    recipe: IndexRecipe, corpus: Path, destination: Path, tmp_path: Path
) -> None:
    build(recipe, destination)
    other = tmp_path / "gate.md"
    other.write_text("Another gate.")
    report = add(recipe, destination, other)
    assert [str(failure) for failure in report.failures] == [
        f"{other}: the id 'gate.md' is taken by 'gate.md'"
    ]
    for _ in range(2):  # the id stays with the file that had it first, in every later sync
        with DocumentIndex.open(destination) as index:
            assert index.document("gate.md").source == str(corpus / "gate.md")
        assert len(build(recipe, destination).failures) == 1


def test_rows_become_documents_and_a_bad_one_refuses_its_file(
    corpus: Path, destination: Path
) -> None:
    recipe = IndexRecipe("small", corpus, "hashing", text_column="body", id_column="key")
    (corpus / "rows.jsonl").write_text('{"key": "a", "body": "Some words.", "year": 2020}\n')
    (corpus / "bad.jsonl").write_text('{"key": "b", "body": "Words.", "year": 1e999}\n')
    report = build(recipe, destination)
    assert [failure.path.name for failure in report.failures] == ["bad.jsonl"]
    with DocumentIndex.open(destination) as index:
        assert index.document("rows.jsonl#a").metadata["year"] == 2020
    whole = IndexRecipe("small", corpus, "hashing")
    assert "rows.jsonl" in {*build(whole, destination).changes.added}  # noticed: read another way


def test_the_time_of_a_scan_is_kept(recipe: IndexRecipe, destination: Path) -> None:
    before = time.time_ns()
    build(recipe, destination)
    with DocumentIndex.open(destination) as index:
        assert before <= index.manifest.scanned_at <= time.time_ns()
