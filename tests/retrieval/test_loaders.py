from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from specrag.errors import InputError
from specrag.retrieval import loaders
from specrag.retrieval.loaders import load_folder


def put(root: Path, name: str, content: str | bytes = "some text") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def ids(root: Path, patterns: Sequence[str] = ("*.md", "*.txt")) -> list[str]:
    return [document.id for document in load_folder(root, patterns).documents]


def test_documents_come_in_the_order_of_their_paths(tmp_path: Path) -> None:
    for name in ["b.md", "a/z.txt", "a.md", "a/b/c.md", "B.md"]:
        put(tmp_path, name)
    assert ids(tmp_path) == ["B.md", "a.md", "a/b/c.md", "a/z.txt", "b.md"]


def test_hidden_files_and_folders_are_passed_over(tmp_path: Path) -> None:
    for name in [".git/a.md", ".hidden.md", "seen.md", "sub/.venv/b.md"]:
        put(tmp_path, name)
    report = load_folder(tmp_path)
    assert [document.id for document in report.documents] == ["seen.md"]
    assert report.failures == ()


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["*.md"], ["a.md", "sub/b.md", "sub/deep/c.md"]),
        (["**/*.md"], ["a.md", "sub/b.md", "sub/deep/c.md"]),
        (["sub/*.md"], ["sub/b.md"]),
        (["sub/**"], ["sub/b.md", "sub/deep/c.md", "sub/d.txt"]),
        (["sub/**/c.md", "?.txt"], ["sub/d.txt", "sub/deep/c.md"]),
        (["a.md"], ["a.md"]),
    ],
)
def test_patterns_choose_files(tmp_path: Path, patterns: list[str], expected: list[str]) -> None:
    for name in ["a.md", "sub/b.md", "sub/deep/c.md", "sub/d.txt", "axmd.rst"]:
        put(tmp_path, name)
    assert sorted(ids(tmp_path, patterns)) == sorted(expected)


@pytest.mark.parametrize("text", ["a\r\nb\r\n", "a\rb", "a\nb", "näïve 中文 🙂\r\n"])
def test_text_is_kept_exactly(tmp_path: Path, text: str) -> None:
    put(tmp_path, "a.txt", text)
    assert load_folder(tmp_path).documents[0].text == text


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    put(tmp_path, "a.txt", b"\xef\xbb\xbfhello")
    assert load_folder(tmp_path).documents[0].text == "hello"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("bad.txt", b"caf\xe9 au lait", "not UTF-8 text (byte 3)"),
        ("bad.txt", b"PK\x03\x04\0\0", "binary"),
        ("bad.txt", "text".encode("utf-16"), "UTF-16"),
        ("bad.txt", b" \n\t\n", "holds no text"),
        ("bad.txt", b"", "holds no text"),
        ("bad.pdf", b"%PDF-1.7", "unknown file type '.pdf'; allowed: .markdown, .md"),
    ],
)
def test_a_bad_file_is_reported_and_the_rest_goes_on(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    bad = put(tmp_path, name, content)
    put(tmp_path, "good.md")
    report = load_folder(tmp_path, ["*"])
    assert [document.id for document in report.documents] == ["good.md"]
    (failure,) = report.failures
    assert failure.path == bad
    assert reason in failure.reason


@pytest.mark.parametrize(("limit", "num_failures"), [(9, 0), (8, 1)])
def test_files_above_the_limit_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, num_failures: int
) -> None:
    monkeypatch.setattr(loaders, "MAX_FILE_BYTES", limit)
    put(tmp_path, "a.txt", "some text")
    report = load_folder(tmp_path)
    assert [f.reason for f in report.failures] == [f"is larger than {limit} bytes"] * num_failures


def test_links_to_folders_are_reported_and_not_followed(tmp_path: Path) -> None:
    put(tmp_path, "sub/a.md")
    (tmp_path / "sub" / "loop").symlink_to(tmp_path, target_is_directory=True)
    report = load_folder(tmp_path)
    assert [document.id for document in report.documents] == ["sub/a.md"]
    assert [(failure.path.name, failure.reason) for failure in report.failures] == [
        ("loop", "is a link to a folder; not followed")
    ]


def test_broken_links_and_pipes_are_reported(tmp_path: Path) -> None:
    put(tmp_path, "a.md")
    (tmp_path / "broken.md").symlink_to(tmp_path / "gone.md")
    os.mkfifo(tmp_path / "pipe.md")
    failures = load_folder(tmp_path).failures
    assert [failure.path.name for failure in failures] == ["broken.md", "pipe.md"]
    assert all("not a regular file" in failure.reason for failure in failures)


def test_a_file_name_that_is_not_utf8_is_reported(tmp_path: Path) -> None:
    put(tmp_path, "a.md")
    put(tmp_path, os.fsdecode(b"b\xff.md"))
    report = load_folder(tmp_path)
    assert [document.id for document in report.documents] == ["a.md"]
    assert ["not UTF-8" in failure.reason for failure in report.failures] == [True]


def test_an_unreadable_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "a.md")

    def refuse(*args: object, **kwargs: object) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert [f.reason for f in load_folder(tmp_path).failures] == ["Permission denied"]


def test_a_folder_that_cannot_be_listed_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a.md")
    put(tmp_path, "locked/b.md")
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    report = load_folder(tmp_path)
    assert [document.id for document in report.documents] == ["a.md"]
    assert [failure.path for failure in report.failures] == [tmp_path / "locked"]


def test_a_single_file_is_read_whatever_the_patterns_are(tmp_path: Path) -> None:
    path = put(tmp_path, "notes.txt", "hello")
    (document,) = load_folder(path, ["*.md"]).documents
    assert (document.id, document.text, document.source) == ("notes.txt", "hello", str(path))


@pytest.mark.parametrize(
    ("name", "text", "title"),
    [
        ("a.md", "intro\n\n## Second\n# First", "Second"),
        ("a.rst", "Title\n=====\n\ntext", "Title"),
        ("a.txt", "# not a heading here", None),
        ("a.md", "no heading", None),
    ],
)
def test_the_title_is_the_first_heading(
    tmp_path: Path, name: str, text: str, title: str | None
) -> None:
    put(tmp_path, name, text)
    assert load_folder(tmp_path).documents[0].title == title


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder.*gone") as caught:
        load_folder(tmp_path / "gone")
    assert caught.value.hint


@pytest.mark.parametrize("patterns", [["*.rst"], []])
def test_a_folder_without_a_match_is_refused(tmp_path: Path, patterns: list[str]) -> None:
    put(tmp_path, "a.md")
    with pytest.raises(InputError, match="no file in .* matches") as caught:
        load_folder(tmp_path, patterns)
    assert caught.value.hint
