"""The formats that can be read, told apart by suffix. Depends on the readers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath

from specrag.retrieval.sources.bounds import (
    MAX_RICH_FILE_BYTES,
    MAX_TABLE_FILE_BYTES,
    MAX_TEXT_FILE_BYTES,
)
from specrag.retrieval.sources.formats.csv_table import read_csv
from specrag.retrieval.sources.formats.docx import read_docx
from specrag.retrieval.sources.formats.html import read_html
from specrag.retrieval.sources.formats.json_rows import read_json, read_json_lines
from specrag.retrieval.sources.formats.pdf import read_pdf
from specrag.retrieval.sources.formats.text import read_text
from specrag.retrieval.sources.source import Content, ReadOptions, UnreadableError
from specrag.retrieval.structure import CODE_SUFFIXES

Reader = Callable[[bytes, str, ReadOptions], tuple[Content, ...]]


@dataclass(frozen=True, slots=True)
class Format:
    """A format.

    Attributes:
        suffixes: Of its files.
        read: Makes contents of a file's bytes, its name and the options.
        max_bytes: The largest file that is read.
    """

    suffixes: tuple[str, ...]
    read: Reader
    max_bytes: int = MAX_TEXT_FILE_BYTES


_TEXT = Format(
    (".adoc", ".asciidoc", ".log", ".markdown", ".md", ".mdx", ".org", ".rest", ".rst", ".srt",
     ".tex", ".text", ".txt", ".vtt", *CODE_SUFFIXES),
    read_text,
)  # fmt: skip
_HTML = Format((".htm", ".html", ".xhtml"), read_html)
_PDF = Format((".pdf",), read_pdf, MAX_RICH_FILE_BYTES)
_DOCX = Format((".docx",), read_docx, MAX_RICH_FILE_BYTES)
FORMATS = (
    _TEXT,
    _HTML,
    _PDF,
    _DOCX,
    Format((".csv", ".tsv"), read_csv, MAX_TABLE_FILE_BYTES),
    Format((".json",), read_json),
    Format((".jsonl", ".ndjson"), read_json_lines, MAX_TABLE_FILE_BYTES),
)
SUFFIXES = tuple(sorted(suffix for known in FORMATS for suffix in known.suffixes))
# Files without a suffix that are text by custom.
KNOWN_NAMES = (
    "AUTHORS", "CHANGELOG", "CHANGES", "CONTRIBUTING", "COPYING", "Dockerfile", "INSTALL",
    "LICENSE", "Makefile", "NEWS", "NOTICE", "README", "TODO",
)  # fmt: skip

_OF_SUFFIX = {suffix: known for known in FORMATS for suffix in known.suffixes}
_ADVICE = {
    **dict.fromkeys((".doc", ".epub", ".odt", ".pages", ".rtf"), "save it as .docx or .pdf"),
    **dict.fromkeys((".odp", ".ppt", ".pptx"), "save it as .pdf"),
    **dict.fromkeys((".numbers", ".ods", ".parquet", ".xls", ".xlsx"), "save it as .csv"),
    **dict.fromkeys((".eml", ".msg"), "save it as .txt"),
    ".ipynb": "export it as .md",
}
UNREADABLE_SUFFIXES = tuple(sorted(_ADVICE))
"""Of documents that cannot be read; a user who has some should be told."""
_PACKED = (".7z", ".bz2", ".gz", ".rar", ".xz", ".zst")
_PAGE = re.compile(rb"\s*<(?:!doctype\s+html|html)\b", re.IGNORECASE)


def format_of(name: str) -> Format:
    """Returns the format of a file; one with an unknown suffix is taken for text.

    Args:
        name: Its name.

    Raises:
        UnreadableError: The suffix is of a known format that cannot be read.
    """
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in _ADVICE:
        raise UnreadableError(f"files of type {suffix} cannot be read; {_ADVICE[suffix]}")
    if suffix in _PACKED:
        raise UnreadableError(f"files of type {suffix} cannot be read; unpack it")
    return _OF_SUFFIX.get(suffix, _TEXT)


def format_of_start(data: bytes) -> Format:
    """Returns the format of a file without a suffix by its first bytes.

    Args:
        data: The file.
    """
    if data.startswith(b"%PDF-"):
        return _PDF
    if data.startswith(b"PK\x03\x04") and b"word/" in data:
        return _DOCX
    return _HTML if _PAGE.match(data) else _TEXT
