"""Hostile and odd inputs: each with the message it gives, and the rest of the folder goes on."""

from __future__ import annotations

import codecs
import importlib
import io
import os
import socket
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from specrag.retrieval.sources import listing
from specrag.retrieval.sources.archives import zip_archive
from specrag.retrieval.sources.bounds import MAX_LINE_CHARACTERS
from specrag.retrieval.sources.catalog import load_entry, load_folder, scan
from specrag.retrieval.sources.formats import docx
from tests.retrieval.sources.samples import (
    docx_of,
    encrypted_pdf,
    pdf_of,
    put,
    tar_of,
    zip_of,
)
from tests.retrieval.sources.test_files import changing

MIB = 1024 * 1024
Make = Callable[[Path], object]


@dataclass(frozen=True)
class Case:
    """An input: how it is made in a folder, what is read of it and what is said of it."""

    name: str
    make: Make
    messages: tuple[str, ...] = ()  # the failures, without the folder's path
    reads: tuple[str, ...] = ()  # ids of documents


def holds(name: str, content: str | bytes) -> Make:
    return lambda root: put(root, name, content)


def encrypted_zip() -> bytes:
    data = bytearray(zip_of({"a.md": "text"}))
    for start in (6, data.rindex(b"PK\x01\x02") + 8):
        data[start] |= 1
    return bytes(data)


def linked_zip() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        info = zipfile.ZipInfo("link.md")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    return stream.getvalue()


def linked_tar() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        info = tarfile.TarInfo("link.md")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(info)
    return stream.getvalue()


def sparse(name: str, size: int) -> Make:
    def make(root: Path) -> None:
        with (root / name).open("wb") as file:
            file.truncate(size)

    return make


def both(*makes: Make) -> Make:
    return lambda root: [make(root) for make in makes]


CASES = [
    Case("empty", holds("x.md", b""), ("x.md: holds no text",)),
    Case("blank", holds("x.txt", " \n\t\r\n"), ("x.txt: holds no text",)),
    Case("only-a-mark", holds("x.md", codecs.BOM_UTF8), ("x.md: holds no text",)),
    Case("nul", holds("x.txt", b"a\0b"), ("x.txt: is binary, not text (NUL at byte 1)",)),
    Case(
        "binary-as-text",
        holds("x.md", bytes(range(1, 256)) * 4),
        ("x.md: is binary, not text (byte 127)",),
    ),
    Case("utf16", holds("x.txt", "words".encode("utf-16")), reads=("x.txt",)),
    Case("utf16-without-mark", holds("x.txt", "words".encode("utf-16-le")), reads=("x.txt",)),
    Case(
        "utf16-cut",
        holds("x.txt", "words".encode("utf-16")[:-1]),
        ("x.txt: starts with the mark of UTF-16 but is not UTF-16 text (byte 10)",),
    ),
    Case(
        "latin-1",
        holds("x.txt", b"caf\xe9 au lait"),
        ("x.txt: is not UTF-8 text (byte 3) and its encoding cannot be told; save it as UTF-8",),
    ),
    Case(
        "mixed-encodings",
        holds("x.txt", "naïve café déjà vu. ".encode() + b"caf\xe9"),
        ("x.txt: mixes UTF-8 with another encoding (byte 27); save it as UTF-8",),
    ),
    Case("odd-ends-of-lines", holds("x.md", "a\r\rb\n\r\n\x0b\x85\u2028c"), reads=("x.md",)),
    Case("200-MiB-line", sparse("x.txt", 200 * MIB), ("x.txt: is larger than 32 MiB; split it",)),
    Case(
        "long-line",
        holds("x.txt", "word " * 210_000),
        (
            "x.txt: has a line of 1,050,000 characters (at most 1,000,000), which is data and not "
            "text",
        ),
    ),
    Case(
        "pdf-broken",
        holds("x.pdf", pdf_of(["words"])[:60]),
        ("x.pdf: is a damaged PDF file (Stream has ended unexpectedly)",),
    ),
    Case(
        "pdf-that-is-none",
        holds("x.pdf", "<html>"),
        ("x.pdf: is no PDF file (its start does not say so)",),
    ),
    Case(
        "pdf-encrypted",
        holds("x.pdf", encrypted_pdf()),
        ("x.pdf: is encrypted; save it without a password",),
    ),
    Case(
        "pdf-without-text",
        holds("x.pdf", pdf_of(["", ""])),
        ("x.pdf: is a PDF without text; run text recognition (OCR) on it first",),
    ),
    Case("pdf-huge", sparse("x.pdf", 257 * MIB), ("x.pdf: is larger than 256 MiB; split it",)),
    Case(
        "docx-bomb",
        holds("x.docx", zip_of({"word/document.xml": b" " * (2 * MIB)})),
        ("x.docx: unpacks to more than 1 MiB; save it without pictures",),
    ),
    Case(
        "docx-that-is-no-zip",
        holds("x.docx", "words"),
        ("x.docx: is no Word file or is cut off; save it as .docx again",),
    ),
    Case(
        "docx-cut",
        holds("x.docx", docx_of("words")[:-100]),
        ("x.docx: is no Word file or is cut off; save it as .docx again",),
    ),
    Case(
        "docx-encrypted",
        holds("x.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 504),
        ("x.docx: is encrypted or an old Word file; save it as .docx without a password",),
    ),
    Case(
        "docx-of-something-else",
        holds("x.docx", zip_of({"xl/workbook.xml": "<x/>"})),
        ("x.docx: is no Word file (no word/document.xml in it)",),
    ),
    Case(
        "old-format",
        holds("x.doc", "words"),
        ("x.doc: files of type .doc cannot be read; save it as .docx or .pdf",),
    ),
    Case("deep-html", holds("x.html", "<div>" * 100_000 + "words"), reads=("x.html",)),
    Case("html-of-scripts", holds("x.html", "<script>x</script>"), ("x.html: holds no text",)),
    Case(
        "deep-json",
        holds("x.json", "[" * 100_000 + "]" * 100_000),
        ("x.json: is nested more than 64 deep",),
    ),
    Case(
        "nan-json", holds("x.json", '{"a": NaN}'), ("x.json: is not JSON (NaN is no JSON number)",)
    ),
    Case(
        "jsonl-with-a-bad-line",
        holds("x.jsonl", '{"a": 1}\n{"a": 2\n{"a": 3}\n'),
        ("x.jsonl: line 2 is not JSON (column 8: Expecting ',' delimiter)",),
    ),
    Case("ragged-csv", holds("x.csv", "a,b\n1\n1,2,3\n"), reads=("x.csv",)),
    Case("csv-with-an-open-quote", holds("x.csv", 'a,b\n"1,2\n3,4\n'), reads=("x.csv",)),
    Case("name-with-a-line-end", holds("x\ny.md", "words"), reads=("x\ny.md",)),
    Case(
        "bad-file-with-a-line-end-in-its-name",
        holds("x\ny.md", ""),
        ("'{root}/x\\ny.md': holds no text",),
    ),
    Case(
        "name-that-is-not-utf8",
        lambda root: put(root, os.fsdecode(b"x\xff.md"), "words"),
        ("'{root}/x\\udcff.md': has a name that is not UTF-8: 'x\\udcff.md'",),
    ),
    Case(
        "duplicates",
        both(holds("x.md", "words"), holds("y/x.md", "words")),
        reads=("x.md", "y/x.md"),
    ),
    Case(
        "ring-of-links",
        lambda root: (root / "x.md").symlink_to(root / "x.md"),
        ("x.md: is a link that leads nowhere",),
    ),
    Case(
        "dangling-link",
        lambda root: (root / "x.md").symlink_to(root / "gone"),
        ("x.md: is a link that leads nowhere",),
    ),
    Case(
        "link-out-of-the-folder",
        lambda root: (root / "x.md").symlink_to(__file__),
        ("x.md: is a link that leads out of the folder; not followed",),
    ),
    Case(
        "folder-loop",
        lambda root: (root / "x").symlink_to(root),
        ("x: is a link that leads back to a folder it lies in; not followed",),
    ),
    Case("pipe", lambda root: os.mkfifo(root / "x.md"), ("x.md: is a named pipe, not a file",)),
    Case("folder-named-as-a-file", holds("x.md/y.md", "words"), reads=("x.md/y.md",)),
    Case(
        "zip-cut",
        holds("x.zip", zip_of({"a.md": "words"})[:-30]),
        ("x.zip: is damaged or no zip archive (no directory at its end)",),
    ),
    Case(
        "zip-encrypted",
        holds("x.zip", encrypted_zip()),
        ("x.zip/a.md: is encrypted; unpack the archive first",),
    ),
    Case(
        "zip-with-a-link",
        holds("x.zip", linked_zip()),
        ("x.zip/link.md: is a link inside an archive; not followed",),
    ),
    Case(
        "zip-with-the-same-name-twice",
        holds("x.zip", zip_of({"a.md": "old", "./a.md": "new"})),
        ("x.zip/a.md: stands in the archive twice; the later one was read",),
        ("x.zip/a.md",),
    ),
    Case(
        "zip-with-too-many",
        holds("x.zip", zip_of({f"{n}.md": "" for n in range(101)})),
        ("x.zip: holds more than 100 files; unpack it first",),
    ),
    Case(
        "zip-bomb",
        holds("x.zip", zip_of({"a.md": b" " * (2 * MIB)})),
        ("x.zip: unpacks to more than 200 times its size; unpack it first",),
    ),
    Case(
        "archive-in-an-archive",
        holds("x.tar", tar_of({"y.zip": zip_of({"a.md": "words"})})),
        ("x.tar/y.zip: is an archive inside an archive; unpack it first",),
    ),
    Case(
        "tar-that-goes-up",
        holds("x.tar", tar_of({"../../up.md": "w", "/etc/top.md": "w"})),
        reads=("x.tar/etc/top.md", "x.tar/up.md"),
    ),
    Case(
        "tar-with-a-link",
        holds("x.tar", linked_tar()),
        ("x.tar/link.md: is a link inside an archive; not followed",),
    ),
    Case(
        "tar-cut",
        holds("x.tar.gz", tar_of({"a.md": "words"}, "w:gz")[:-20]),
        (
            "x.tar.gz: is damaged or cut off (Compressed file ended before the end-of-stream "
            "marker was reached); what stands before that was read",
        ),
        ("x.tar.gz/a.md",),
    ),
]


def report_of(root: Path) -> tuple[list[str], list[str]]:
    """Returns the ids and the messages of a folder, without its path."""
    report = load_folder(root)
    messages = [str(failure).removeprefix(f"{root}/") for failure in report.failures]
    return [document.id for document in report.documents], messages


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_input_gives_its_message_and_the_rest_goes_on(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Bounds that would take long to pass are lowered; the real ones are the same code.
    monkeypatch.setattr(docx, "MAX_DOCX_UNPACKED_BYTES", MIB)
    monkeypatch.setattr(listing, "MIN_BOMB_BYTES", MIB)
    monkeypatch.setattr(zip_archive, "MAX_ARCHIVE_MEMBERS", 100)
    case.make(tmp_path)
    put(tmp_path, "good.md", "words")
    ids, messages = report_of(tmp_path)
    assert messages == [message.replace("{root}", str(tmp_path)) for message in case.messages]
    assert sorted(ids) == sorted(["good.md", *case.reads])


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 30
    assert len({case.name for case in CASES}) == len(CASES)


def test_a_socket_is_not_read(tmp_path: Path) -> None:
    # The path of a socket must be short.
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{folder}/x.md")
        put(Path(folder), "good.md", "words")
        assert report_of(Path(folder)) == (["good.md"], ["x.md: is a socket, not a file"])


def test_no_read_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The superuser may read everything, so the system's answer is given in its place.
    put(tmp_path, "x.md", "words")
    put(tmp_path, "good.md", "words")
    real = os.open

    def refuse(path: Path, flags: int) -> int:
        if path.name == "x.md":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, flags)

    monkeypatch.setattr(os, "open", refuse)
    assert report_of(tmp_path) == (["good.md"], ["x.md: Permission denied"])


def test_a_file_that_changes_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path, "x.md", "words")
    changing(path, 2, monkeypatch)
    message = "x.md: changed while it was read; run again when nothing writes to it"
    assert report_of(tmp_path) == ([], [message])


def test_a_file_that_is_gone_when_it_is_read(tmp_path: Path) -> None:
    path = put(tmp_path, "x.md", "words")
    (entry,) = scan(tmp_path).entries
    path.unlink()
    with pytest.raises(Exception, match=r"^No such file or directory$"):
        load_entry(entry)


@pytest.mark.parametrize(
    ("name", "content", "module"),
    [
        ("x.pdf", pdf_of(["words"]), "pypdf"),
        ("x.docx", docx_of("words"), "docx"),
        ("x.html", "<p>words", "lxml.etree"),
    ],
)
def test_a_missing_extra(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    content: str | bytes,
    module: str,
) -> None:
    put(tmp_path, name, content)
    put(tmp_path, "good.md", "words")
    real = importlib.import_module

    def refuse(wanted: str) -> object:
        if wanted == module:
            raise ModuleNotFoundError(f"No module named {wanted!r}", name=wanted.split(".")[0])
        return real(wanted)

    monkeypatch.setattr(importlib, "import_module", refuse)
    message = f"{name}: cannot be read yet; pip install 'specrag[docs]'"
    assert report_of(tmp_path) == (["good.md"], [message])


def test_duplicates_share_a_digest(tmp_path: Path) -> None:
    put(tmp_path, "a.md", "words")
    put(tmp_path, "b.md", "words")
    one, other = (load_entry(entry) for entry in scan(tmp_path).entries)
    assert one.content_hash == other.content_hash


@pytest.mark.slow
def test_hostile_inputs_at_their_real_size(tmp_path: Path) -> None:
    (tmp_path / "line.txt").write_bytes(b"word " * (40 * MIB))
    put(tmp_path, "many.zip", zip_of({f"{number}.md": "x" for number in range(100_000)}))
    put(tmp_path, "bomb.zip", zip_of({"a.md": b" " * (300 * MIB)}))
    put(tmp_path, "bomb.tar.xz", tar_of({"a.md": b" " * (300 * MIB)}, "w:xz"))
    put(tmp_path, "bomb.docx", zip_of({"word/document.xml": b" " * (600 * MIB)}))
    put(tmp_path, "near.txt", ("x" * (MAX_LINE_CHARACTERS - 1) + "\n") * 30)
    assert report_of(tmp_path) == (
        ["near.txt"],
        [
            "bomb.docx: unpacks to more than 512 MiB; save it without pictures",
            "bomb.tar.xz: unpacks to more than 200 times its size; unpack it first",
            "bomb.zip: unpacks to more than 200 times its size; unpack it first",
            "line.txt: is larger than 32 MiB; split it",
            "many.zip: holds more than 50,000 files; unpack it first",
        ],
    )
