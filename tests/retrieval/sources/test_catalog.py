from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from specrag.errors import InputError
from specrag.retrieval.sources import catalog
from specrag.retrieval.sources.catalog import DEFAULT_PATTERNS, load_folder, read_stdin, scan
from specrag.retrieval.sources.source import ReadOptions, UnreadableError
from tests.retrieval.sources.samples import docx_of, pdf_of, put, tar_of, zip_of


def test_a_folder_of_many_formats_is_read(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "a.md": "# A\ntext",
        "b.docx": docx_of("text"),
        "c.pdf": pdf_of(["text"]),
        "d.html": "<p>text",
        "e.csv": "a\ntext",
        "f.json": '["text"]',
        "g.py": "x = 1",
        "h.zip": zip_of({"i.md": "text", "j.bin": "\0"}),
        "k.tar.xz": tar_of({"l.rst": "text"}, "w:xz"),
        "README": "text",
        "broken.pdf": "no pdf",
    }
    for name, content in files.items():
        put(tmp_path, name, content)
    report = load_folder(tmp_path)
    assert [document.id for document in report.documents] == [
        *["README", "a.md", "b.docx", "c.pdf", "d.html", "e.csv", "f.json", "g.py"],
        *["h.zip/i.md", "k.tar.xz/l.rst"],
    ]
    assert [str(failure) for failure in report.failures] == [
        f"{tmp_path}/broken.pdf: is no PDF file (its start does not say so)"
    ]
    assert all(document.metadata["suffix"] is not None for document in report.documents)


def test_rows_keep_their_order(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", "t\n" + "".join(f"row {number}\n" for number in range(1, 12)))
    documents = load_folder(tmp_path, options=ReadOptions(text_column="t")).documents
    assert [document.text for document in documents] == [f"row {number}" for number in range(1, 12)]


@pytest.mark.parametrize("name", ["notes.txt", "notes.unknown", "node_modules"])
def test_a_single_file_is_read_whatever_the_patterns_are(tmp_path: Path, name: str) -> None:
    path = put(tmp_path, name, "hello")
    (document,) = load_folder(path, ["*.md"]).documents
    assert (document.id, document.text, document.source) == (name, "hello", str(path))


def test_a_single_archive_is_read(tmp_path: Path) -> None:
    path = put(tmp_path, "docs.tar.gz", tar_of({"x/b.md": "b", "x/a.md": "a"}, "w:gz"))
    report = load_folder(path)
    assert [document.id for document in report.documents] == [
        "docs.tar.gz/x/a.md",
        "docs.tar.gz/x/b.md",
    ]
    assert report.failures == ()


def test_a_missing_root_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder.*gone") as caught:
        load_folder(tmp_path / "gone")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (["*.rst"], "no file in .* that matches any of: \\*.rst; there are others: 2 .md, 1 .png"),
        ([], "that matches any of: \\(no pattern\\)"),
    ],
)
def test_a_folder_without_a_match_is_refused(
    tmp_path: Path, patterns: list[str], message: str
) -> None:
    for name in ["a.md", "b.md", "c.png"]:
        put(tmp_path, name)
    with pytest.raises(InputError, match=message) as caught:
        load_folder(tmp_path, patterns)
    assert caught.value.hint


def test_a_folder_without_documents_names_what_is_there(tmp_path: Path) -> None:
    for name in ["a.png", "b.png", "c"]:
        put(tmp_path, name)
    for patterns in (None, DEFAULT_PATTERNS):
        with pytest.raises(InputError, match="no file in .* of a kind that can be read; there are"):
            load_folder(tmp_path, patterns)


def test_failures_alone_are_no_error(tmp_path: Path) -> None:
    put(tmp_path, "a.md", "")
    (failure,) = load_folder(tmp_path).failures
    assert failure.reason == "holds no text"


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    (document,) = read_stdin(io.BytesIO(b"# not a heading"))
    assert (document.id, document.source, document.syntax) == ("stdin", "stdin", "plain")
    (named,) = read_stdin(io.BytesIO(b"# Heading"), "notes.md")
    assert (named.id, named.title) == ("notes.md", "Heading")
    (sniffed,) = read_stdin(io.BytesIO(pdf_of(["Words."])))
    assert sniffed.text == "Words."
    with pytest.raises(UnreadableError, match="holds no text"):
        read_stdin(io.BytesIO(b""))
    monkeypatch.setattr(catalog, "MAX_RICH_FILE_BYTES", 3)
    with pytest.raises(UnreadableError, match="is larger than 3 bytes"):
        read_stdin(io.BytesIO(b"1234"))


@pytest.mark.slow
def test_the_documentation_of_python_is_read_in_one_call() -> None:
    data = os.environ.get("SPECRAG_DATA")
    if not data:
        pytest.skip("set SPECRAG_DATA to the folder of evaluation data")
    path = Path(data) / "corpora" / "python311_rst.tar.xz"
    report = load_folder(path)
    assert (len(report.documents), report.failures) == (497, ())
    assert {document.syntax for document in report.documents} == {"rst"}
    assert len(scan(path).entries) == 497
