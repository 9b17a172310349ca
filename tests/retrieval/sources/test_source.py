from __future__ import annotations

from pathlib import Path

from specrag.retrieval.sources.source import FileEntry, LoadFailure, Member, UnreadableError


def test_a_failure_is_one_printable_line() -> None:
    assert str(LoadFailure(Path("/x/a.md"), "holds no text")) == "/x/a.md: holds no text"
    assert str(LoadFailure(Path("ä.md"), "is binary")) == "ä.md: is binary"
    odd = str(LoadFailure(Path("a\nb\udcff\x1b[2J.md"), "holds no text"))
    assert odd == "'a\\nb\\udcff\\x1b[2J.md': holds no text"
    assert odd.isprintable()


def test_a_member_lies_below_its_archive() -> None:
    entry = FileEntry("z.zip/a.md", Path("/x/z.zip"), 1, 2, Member("/a.md", 0))
    assert entry.source == "/x/z.zip/a.md"


def test_an_error_gives_its_reason() -> None:
    assert UnreadableError("is binary").reason == str(UnreadableError("is binary")) == "is binary"
