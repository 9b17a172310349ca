from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from specrag.retrieval.sources import entry_reader
from specrag.retrieval.sources.catalog import load_entry, scan
from specrag.retrieval.sources.entry_reader import EntryReader
from specrag.retrieval.sources.source import ReadOptions, UnreadableError
from tests.retrieval.sources.samples import put, tar_of, zip_of


def test_a_file_gives_its_digest_and_documents(tmp_path: Path) -> None:
    put(tmp_path, "a/x.md", "# A\ntext")
    (entry,) = scan(tmp_path).entries
    digest, documents = load_entry(entry)
    (document,) = documents
    assert (document.id, document.source) == ("a/x.md", str(tmp_path / "a" / "x.md"))
    with EntryReader() as reader:
        assert reader.load(entry, known_hash=digest) == (digest, ())
        assert reader.load(entry, known_hash="other").documents == documents


def test_the_digest_follows_the_bytes(tmp_path: Path) -> None:
    for name, text in [("a.md", "one"), ("b.md", "one"), ("c.md", "two")]:
        put(tmp_path, name, text)
    one, same, other = (load_entry(entry).content_hash for entry in scan(tmp_path).entries)
    assert one == same != other


@pytest.mark.parametrize(
    ("name", "make"),
    [("z.zip", zip_of), ("z.tar", tar_of), ("z.tar.xz", lambda m: tar_of(m, "w:xz"))],
)
def test_members_are_read_as_files_are(tmp_path: Path, name: str, make: object) -> None:
    assert callable(make)
    members = {"b/x.md": "# B\ntext", "a.txt": "text", "../up.md": "up"}
    put(tmp_path, name, make(members))
    entries = scan(tmp_path).entries
    assert [entry.name for entry in entries] == [f"{name}/b/x.md", f"{name}/a.txt", f"{name}/up.md"]
    with EntryReader() as reader:
        found = {entry.name: reader.load(entry).documents[0] for entry in reversed(entries)}
    for (inner, text), entry in zip(members.items(), entries, strict=True):
        document = found[entry.name]
        assert (document.id, document.text) == (entry.name, text)
        assert document.source.startswith(str(tmp_path / name))
        assert document.source.endswith(inner)


def test_an_archive_that_changed_is_not_read(tmp_path: Path) -> None:
    path = put(tmp_path, "z.zip", zip_of({"a.md": "one", "b.md": "two"}))
    first, second = scan(tmp_path).entries
    with EntryReader() as reader:
        reader.load(first)
        path.write_bytes(zip_of({"c.md": "three"}))
        os.utime(path, ns=(1, first.mtime_ns + 1))
        with pytest.raises(UnreadableError, match="lies in an archive that changed meanwhile"):
            reader.load(second)
    with pytest.raises(UnreadableError, match="lies in an archive that changed meanwhile"):
        load_entry(second)


def test_the_member_bound_is_that_of_its_format(tmp_path: Path) -> None:
    put(tmp_path, "z.zip", zip_of({"a.md": "one"}))
    (entry,) = scan(tmp_path).entries
    with pytest.raises(UnreadableError, match="is larger than 32 MiB; split it"):
        load_entry(replace(entry, size=32 * 1024 * 1024 + 1))


def test_errors_of_the_system_are_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, "a.md")
    (entry,) = scan(tmp_path).entries

    def refuse(*args: object) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(UnreadableError, match=r"^Permission denied$"):
        load_entry(entry)
    monkeypatch.undo()
    path.unlink()
    with pytest.raises(UnreadableError, match=r"^No such file or directory$"):
        load_entry(entry)


def test_options_reach_the_format(tmp_path: Path) -> None:
    put(tmp_path, "a.jsonl", '{"t": "One."}\n{"t": "Two."}')
    (entry,) = scan(tmp_path).entries
    documents = load_entry(entry, ReadOptions(text_column="t")).documents
    assert [document.id for document in documents] == ["a.jsonl#1", "a.jsonl#2"]


def test_what_cannot_be_stored_is_replaced_without_moving_offsets() -> None:
    text = "a\0b\ud800c"
    assert entry_reader._storable(text) == "a\ufffdb\ufffdc"
    assert len(entry_reader._storable(text)) == len(text)
