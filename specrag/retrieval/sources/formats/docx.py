"""Word files: headings, paragraphs, lists, tables, notes as Markdown. Needs the extra ``docs``."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from typing import Any

from specrag.extras import require_extra
from specrag.retrieval.sources.archives.zip_archive import check_directory
from specrag.retrieval.sources.bounds import (
    MAX_DOCX_UNPACKED_BYTES,
    MAX_TEXT_CHARACTERS,
    readable_size,
)
from specrag.retrieval.sources.formats.markdown_writer import MarkdownWriter, one_line
from specrag.retrieval.sources.source import Content, ReadOptions, UnreadableError

_COMPOUND_FILE = b"\xd0\xcf\x11\xe0"  # old Word files, and new ones with a password
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
# The same text again, or text that was deleted or moved away.
_UNSEEN = frozenset([_FALLBACK, f"{_WORD}moveFrom", f"{_WORD}del"])
_WRAPPERS = frozenset(f"{_WORD}{name}" for name in ("sdt", "sdtContent", "customXml", "ins"))
_MAX_STYLE_DEPTH = 10


def read_docx(data: bytes, name: str, options: ReadOptions) -> tuple[Content, ...]:
    """Reads a Word file; headers, footers and comments are left out.

    Args:
        data: The file.
        name: Not looked at.
        options: Not looked at.

    Raises:
        UnreadableError: It is damaged, encrypted or unpacks to too much.
        MissingExtraError: The extra ``docs`` is not installed.
    """
    _check_zip(data)
    docx = require_extra("docx", "docs")
    try:
        document = docx.Document(io.BytesIO(data))
        writer = MarkdownWriter()
        _Body(writer, _styles(document)).write(document.element.body)
        _write_notes(document, writer)
        title = document.core_properties.title
    except UnreadableError:
        raise
    except Exception as error:  # python-docx promises no kind of error for damage
        raise UnreadableError(f"is a damaged Word file ({_short(error)})") from error
    return (Content(writer.text, "markdown", None, {"title": title} if title else {}),)


def _check_zip(data: bytes) -> None:
    if data.startswith(_COMPOUND_FILE):
        raise UnreadableError(
            "is encrypted or an old Word file; save it as .docx without a password"
        )
    try:
        check_directory(io.BytesIO(data))
        with zipfile.ZipFile(io.BytesIO(data)) as package:
            infos = package.infolist()
    except (UnreadableError, zipfile.BadZipFile, ValueError, OSError) as error:
        raise UnreadableError("is no Word file or is cut off; save it as .docx again") from error
    # zipfile unpacks no more of a part than the directory says.
    if sum(info.file_size for info in infos) > MAX_DOCX_UNPACKED_BYTES:
        raise UnreadableError(
            f"unpacks to more than {readable_size(MAX_DOCX_UNPACKED_BYTES)}; save it without "
            "pictures"
        )
    if "word/document.xml" not in {info.filename for info in infos}:
        raise UnreadableError("is no Word file (no word/document.xml in it)")


def _short(error: Exception) -> str:
    return one_line(str(error))[:100] or type(error).__name__


def _styles(document: Any) -> dict[str, tuple[str, int]]:
    """Returns the kind and the level of each paragraph style, by its id."""
    kinds: dict[str, tuple[str, int]] = {}
    for style in document.styles:
        ancestor, depth = style, 0
        while ancestor is not None and depth < _MAX_STYLE_DEPTH:
            kind = _kind_of_style(str(ancestor.name or "").lower())
            if kind is not None:
                kinds[style.style_id] = kind
                break
            ancestor, depth = getattr(ancestor, "base_style", None), depth + 1
    return kinds


def _kind_of_style(name: str) -> tuple[str, int] | None:
    if name == "title":
        return "heading", 1
    if name.startswith("heading ") and name[8:].isdigit():
        return "heading", int(name[8:])
    if name.startswith("list"):
        return "item", 0
    if "preformatted" in name or "code" in name.split():
        return "code", 0
    return None


class _Body:
    """Writes the blocks of a body, a cell or a note."""

    def __init__(self, writer: MarkdownWriter, styles: dict[str, tuple[str, int]]) -> None:
        self._writer = writer
        self._styles = styles
        self._code: list[str] = []

    def write(self, body: Any) -> None:
        for block in _blocks(body):
            if self._writer.num_characters > MAX_TEXT_CHARACTERS:
                raise UnreadableError(f"holds more than {MAX_TEXT_CHARACTERS:,} characters of text")
            if block.tag == f"{_WORD}p":
                self._paragraph(block)
            else:
                self._flush_code()
                for row in block.iterchildren(f"{_WORD}tr"):
                    self._writer.row([_text(cell) for cell in row.iterchildren(f"{_WORD}tc")])
                self._writer.end_list()
        self._flush_code()

    def _paragraph(self, paragraph: Any) -> None:
        kind, level = self._kind(paragraph)
        text = _text(paragraph)
        if kind == "code":
            self._code.append(text)
            return
        self._flush_code()
        if kind == "heading":
            self._writer.heading(level, text)
        elif kind == "item":
            self._writer.item("-", text, level)
        else:
            self._writer.paragraph(text)

    def _flush_code(self) -> None:
        if self._code:
            self._writer.code("\n".join(self._code))
            self._code.clear()

    def _kind(self, paragraph: Any) -> tuple[str, int]:
        style = paragraph.find(f"{_WORD}pPr/{_WORD}pStyle")
        known = self._styles.get(style.get(f"{_WORD}val")) if style is not None else None
        outline = paragraph.find(f"{_WORD}pPr/{_WORD}outlineLvl")
        if outline is not None and (value := outline.get(f"{_WORD}val", "")) in tuple("012345678"):
            return "heading", int(value) + 1
        if known is not None:
            return known
        numbering = paragraph.find(f"{_WORD}pPr/{_WORD}numPr")
        if numbering is None:
            return "paragraph", 0
        depth = numbering.find(f"{_WORD}ilvl")
        nested = depth is not None and depth.get(f"{_WORD}val", "0") != "0"
        return "item", int(nested)


def _blocks(body: Any) -> Iterator[Any]:
    """Yields the paragraphs and tables, those in content controls included."""
    pending = [body.iterchildren()]
    while pending:
        element = next(pending[-1], None)
        if element is None:
            pending.pop()
        elif element.tag in (f"{_WORD}p", f"{_WORD}tbl"):
            yield element
        elif element.tag in _WRAPPERS:
            pending.append(element.iterchildren())


def _text(block: Any) -> str:
    """Returns the text of a paragraph or a cell, that in fields and text boxes included."""
    parts: list[str] = []
    pending = [block.iterchildren()]
    while pending:
        element = next(pending[-1], None)
        if element is None:
            pending.pop()
            continue
        if element.tag in _UNSEEN or not isinstance(element.tag, str):
            continue
        name = element.tag.removeprefix(_WORD)
        if name == "t":
            parts.append(element.text or "")
        elif name == "tab":
            parts.append("\t")
        elif name in ("br", "cr"):
            parts.append("\n")
        else:
            if name == "p" and parts:
                parts.append("\n")
            pending.append(element.iterchildren())
    return "".join(parts)


def _write_notes(document: Any, writer: MarkdownWriter) -> None:
    """Writes the footnotes and endnotes after the text."""
    etree = require_extra("lxml.etree", "docs")
    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    for relation in document.part.rels.values():
        kind = relation.reltype.rpartition("/")[2]
        if relation.is_external or kind not in ("footnotes", "endnotes"):
            continue
        for note in etree.fromstring(relation.target_part.blob, parser):
            if text := _text(note).strip():
                writer.paragraph(text)
