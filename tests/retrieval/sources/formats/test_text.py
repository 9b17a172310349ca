from __future__ import annotations

import pytest

from specrag.retrieval.sources.formats import text
from specrag.retrieval.sources.source import ReadOptions, UnreadableError
from tests.retrieval.sources.samples import read_one


@pytest.mark.parametrize("content", ["a\r\nb\r\n", "a\rb", "a\nb", "näïve 中文 🙂\r\n"])
@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.rst", "a.py", "README", "a.unknown"])
def test_text_is_kept_exactly(content: str, name: str) -> None:
    assert read_one(content, name).text == content


@pytest.mark.parametrize(
    ("name", "content", "title", "syntax"),
    [
        ("a.md", "intro\n\n## Second\n# First", "Second", "markdown"),
        ("a.rst", "Title\n=====\n\ntext", "Title", "rst"),
        ("a.rst.txt", "Title\n=====\n\ntext", "Title", "rst"),
        ("a.txt", "# not a heading here", None, "plain"),
        ("a.md", "no heading", None, "markdown"),
        ("a.md", "---\ntitle: 'Given: one'\n---\n# Heading", "Given: one", "markdown"),
        ("a.py", "# comment\nx = 1", None, "code"),
    ],
)
def test_titles_and_markup(name: str, content: str, title: str | None, syntax: str) -> None:
    document = read_one(content, name)
    assert (document.title, document.syntax) == (title, syntax)


def test_metadata_tells_the_suffix_and_an_unusual_encoding() -> None:
    assert read_one("x", "A.TXT").metadata == {"suffix": ".txt"}
    assert read_one("x".encode("utf-16"), "a.txt").metadata == {
        "suffix": ".txt",
        "encoding": "utf-16",
    }
    forced = read_one(b"caf\xe9", "a.txt", ReadOptions(encoding="latin-1"))
    assert (forced.text, forced.metadata["encoding"]) == ("café", "latin-1")


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_the_longest_line_is_bounded(monkeypatch: pytest.MonkeyPatch, line_end: str) -> None:
    monkeypatch.setattr(text, "MAX_LINE_CHARACTERS", 8)
    assert read_one(f"12345678{line_end}12345678{line_end}", "a.txt")
    with pytest.raises(UnreadableError, match=r"has a line of 9 characters \(at most 8\)"):
        read_one(f"1{line_end}123456789{line_end}", "a.txt")
