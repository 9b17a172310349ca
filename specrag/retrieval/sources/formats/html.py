"""HTML pages: headings, paragraphs, lists, tables, code as Markdown. Needs the extra ``docs``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from specrag.extras import require_extra
from specrag.retrieval.document import MetadataValue
from specrag.retrieval.sources.bounds import MAX_TEXT_CHARACTERS
from specrag.retrieval.sources.decoding import decode
from specrag.retrieval.sources.formats.markdown_writer import MarkdownWriter, one_line
from specrag.retrieval.sources.source import Content, ReadOptions, UnreadableError

_CHARSET = re.compile(
    rb"<(?:meta\b|\?xml\b)[^>]{0,300}?(?:charset|encoding)\s*=\s*[\"']?([\w.:-]+)", re.I
)
_CHARSET_BYTES = 4096
# As browsers read these names.
_ALIASES = {"iso-8859-1": "cp1252", "latin1": "cp1252", "us-ascii": "cp1252", "gb2312": "gb18030"}
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_UNSEEN = frozenset(
    ["script", "style", "template", "svg", "math", "iframe", "object", "select", "noscript"]
)
_NAVIGATION = frozenset(["nav"])
_BLOCK_NAMES = (
    "address article aside blockquote body caption center dd details dialog div dl dt fieldset "
    "figcaption figure footer form header hr html legend main ol p pre section summary table tbody "
    "td tfoot th thead tr ul li"
)
_BLOCKS = frozenset([*_BLOCK_NAMES.split(), *_HEADINGS])
_LISTS = frozenset(["ol", "ul", "menu"])


def read_html(data: bytes, name: str, options: ReadOptions) -> tuple[Content, ...]:
    """Reads an HTML page; scripts, styles and navigation are left out.

    Args:
        data: The page.
        name: Not looked at.
        options: How to read it.

    Raises:
        UnreadableError: It is no text.
        MissingExtraError: The extra ``docs`` is not installed.
    """
    declared = _declared(data)
    text, encoding = (
        (data.decode(declared), declared) if declared else decode(data, options.encoding)
    )
    page = _render(text, _UNSEEN | _NAVIGATION)
    if not page.writer.text.strip():  # a page may be nothing but links
        page = _render(text, _UNSEEN)
    metadata: Mapping[str, MetadataValue] = {} if encoding == "utf-8" else {"encoding": encoding}
    title = page.first_heading or one_line("".join(page.title)) or None
    return (Content(page.writer.text, "markdown", title, metadata),)


def _declared(data: bytes) -> str | None:
    """Returns the encoding that a page names, unless its bytes say otherwise."""
    found = _CHARSET.search(data[:_CHARSET_BYTES])
    if found is None or data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        return None
    name = found[1].decode("ascii", errors="replace").lower()
    name = _ALIASES.get(name, name)
    # A page that can be searched for its name byte by byte is not UTF-16, whatever it says.
    if name.startswith(("utf-16", "utf-8", "utf8")):
        return None
    try:
        data.decode(name)
    except (LookupError, UnicodeError):
        return None
    return name


def _render(text: str, unseen: frozenset[str]) -> _Page:
    # The parser of the standard library takes quadratic time over broken tags; lxml's does not,
    # and feeding events builds no tree that could be too deep.
    etree = require_extra("lxml.etree", "docs")
    page = _Page(unseen)
    parser = etree.HTMLParser(target=page, encoding="utf-8", huge_tree=True, remove_comments=True)
    try:
        etree.fromstring(text.encode("utf-8", errors="replace") or b" ", parser)
    except etree.LxmlError as error:
        raise UnreadableError(f"is no HTML page ({error})") from error
    page.flush()
    return page


@dataclass(slots=True)
class _Table:
    """A table that is being read; one that lays out other blocks is no table."""

    is_layout: bool = False
    row: list[str] | None = None
    in_cell: bool = False
    cell: list[str] = field(default_factory=list)


class _Page:
    """Takes the parser's events."""

    def __init__(self, unseen: frozenset[str]) -> None:
        self.writer = MarkdownWriter()
        self.title: list[str] = []
        self.first_heading: str | None = None
        self._unseen = unseen
        self._num_unseen = 0
        self._in_title = False
        self._inline: list[str] = []
        self._heading = 0
        self._num_pre = 0
        self._lists: list[int | None] = []  # number of the last item; None for bullets
        self._mark = ""
        self._tables: list[_Table] = []

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag in self._unseen:
            self._num_unseen += 1
        elif self._num_unseen:
            return
        elif tag == "title":
            self._in_title = True
        elif tag == "br":
            self._inline.append("\n")
        elif tag == "img":
            self._inline.append(f" {attributes.get('alt', '')} ")
        elif tag in _BLOCKS or tag in _LISTS:
            self.flush()
            self._open(tag)

    def end(self, tag: str) -> None:
        if tag in self._unseen:
            self._num_unseen -= 1
        elif self._num_unseen:
            return
        elif tag == "title":
            self._in_title = False
        elif tag in _BLOCKS or tag in _LISTS:
            self.flush()
            self._close(tag)

    def data(self, text: str) -> None:
        if self._in_title:
            self.title.append(text)
        elif not self._num_unseen:
            self._inline.append(text if self._num_pre else text.replace("\n", " "))

    def close(self) -> None:
        self.flush()

    def flush(self) -> None:
        """Writes the text gathered since the last border of a block."""
        text = "".join(self._inline)
        self._inline.clear()
        if not text.strip():
            return
        if self.writer.num_characters > MAX_TEXT_CHARACTERS:
            raise UnreadableError(f"holds more than {MAX_TEXT_CHARACTERS:,} characters of text")
        table = self._tables[-1] if self._tables else None
        if self._heading:
            self.first_heading = self.first_heading or one_line(text)
            self.writer.heading(self._heading, text)
        elif self._num_pre:
            self.writer.code(text)
        elif table is not None and table.in_cell and not table.is_layout:
            table.cell.append(text)
        elif self._mark:
            self.writer.item(self._mark, text, len(self._lists) - 1)
            self._mark = ""
        else:
            self.writer.paragraph(text)

    def _open(self, tag: str) -> None:
        if tag in _HEADINGS:
            self._lay_out()
            self._heading = _HEADINGS[tag]
        elif tag == "pre":
            self._lay_out()
            self._num_pre += 1
        elif tag in _LISTS:
            self._lists.append(0 if tag == "ol" else None)
        elif tag == "li":
            self._next_item()
        elif tag == "table":
            self._lay_out()
            self._tables.append(_Table())
        elif self._tables:
            self._open_cell(tag)

    def _close(self, tag: str) -> None:
        if tag in _HEADINGS:
            self._heading = 0
        elif tag == "pre":
            self._num_pre = max(0, self._num_pre - 1)
        elif tag in _LISTS and self._lists:
            self._lists.pop()
            self._mark = ""
            if not self._lists:
                self.writer.end_list()
        elif tag == "table" and self._tables:
            self._end_row(self._tables.pop())
            self.writer.end_list()
        elif self._tables:
            self._close_cell(tag)

    def _next_item(self) -> None:
        self._mark = "-"
        if self._lists and (number := self._lists[-1]) is not None:
            self._lists[-1] = number + 1
            self._mark = f"{number + 1}."

    def _open_cell(self, tag: str) -> None:
        table = self._tables[-1]
        if tag == "tr":
            self._end_row(table)
            table.row = []
        elif tag in ("td", "th"):
            table.in_cell = True

    def _close_cell(self, tag: str) -> None:
        table = self._tables[-1]
        if tag in ("td", "th"):
            if table.row is None:
                table.row = []
            table.row.append(" ".join(table.cell))
            table.cell.clear()
            table.in_cell = False
        elif tag == "tr":
            self._end_row(table)

    def _end_row(self, table: _Table) -> None:
        if table.row and not table.is_layout:
            self.writer.row(table.row)
        table.row = None

    def _lay_out(self) -> None:
        """Turns the table around into mere layout, for its cells hold more than text."""
        table = self._tables[-1] if self._tables else None
        if table is None or not table.in_cell or table.is_layout:
            return
        table.is_layout = True
        for text in [*(table.row or ()), *table.cell]:
            self.writer.paragraph(text)
        table.row = None
        table.cell.clear()
