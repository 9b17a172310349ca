"""Headings, fenced code and paragraphs of a text, as offsets. Depends on nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

Syntax = Literal["markdown", "rst", "plain"]
Kind = Literal["heading", "code", "text"]

_SYNTAX_OF_SUFFIX: dict[str, Syntax] = {".md": "markdown", ".markdown": "markdown", ".rst": "rst"}
_LINE = re.compile(r"[^\r\n]*(?:\r\n|[\r\n])|[^\r\n]+")
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})(.*)", re.DOTALL)
_ATX = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)")
# A one-character underline is more often an empty list item than a heading.
_MIN_UNDERLINE = 3
_RST_UNDERLINES = frozenset("=-~^\"'`#*+:.<>_")
_MARKDOWN_UNDERLINES = {"=": 1, "-": 2}


class Block(NamedTuple):
    """A stretch of text that belongs together, without surrounding blank lines.

    Attributes:
        kind: ``heading``, ``code`` (fenced) or ``text`` (a paragraph, list or table).
        start: Offset of its first character.
        end: Offset after its last character.
        path: The headings in effect, outermost first; a heading's own text is the last.
    """

    kind: Kind
    start: int
    end: int
    path: tuple[str, ...]


class _Line(NamedTuple):
    start: int
    end: int
    content: str  # without its line end


def syntax_of(source: str) -> Syntax:
    """Returns the markup of a source, told by its suffix; ``plain`` when it is not known."""
    return _SYNTAX_OF_SUFFIX.get(PurePosixPath(source).suffix.lower(), "plain")


def blocks(text: str, syntax: Syntax) -> list[Block]:
    """Cuts a text into blocks that together hold every character but blank lines.

    Args:
        text: The text of a document.
        syntax: Its markup; ``plain`` knows paragraphs only.

    Returns:
        The blocks in the order of the text, none overlapping another.
    """
    return list(_Scanner(syntax).scan(_lines(text)))


def first_heading(text: str, syntax: Syntax) -> str | None:
    """Returns the text of the first heading, or None when there is none."""
    found = (block.path[-1] for block in blocks(text, syntax) if block.kind == "heading")
    return next((heading for heading in found if heading), None)


def _lines(text: str) -> list[_Line]:
    found = _LINE.finditer(text)
    return [_Line(m.start(), m.end(), m.group().rstrip("\r\n")) for m in found]


class _Scanner:
    """Walks the lines once; ``_pending`` are lines of a paragraph that has not ended yet."""

    def __init__(self, syntax: Syntax) -> None:
        self._syntax = syntax
        self._pending: list[_Line] = []
        self._headings: list[tuple[int, str]] = []
        self._rst_levels: list[str] = []

    def scan(self, lines: Sequence[_Line]) -> Iterator[Block]:
        """Yields the blocks of all lines."""
        index = self._skip_front_matter(lines)
        while index < len(lines):
            fence_end = self._fence_end(lines, index)
            if fence_end is not None:
                yield from self._flush()
                yield self._block("code", lines[index:fence_end])
                index = fence_end
            else:
                yield from self._read(lines[index])
                index += 1
        yield from self._flush()

    def _read(self, line: _Line) -> Iterator[Block]:
        if not line.content.strip():
            yield from self._flush()
        elif (level := self._underline_level(line)) is not None:
            title = self._pending[-1].content.strip()
            self._pending.append(line)
            yield self._heading(level, title, self._pending)
            self._pending = []
        elif self._syntax == "markdown" and (atx := _ATX.match(line.content)):
            yield from self._flush()
            yield self._heading(len(atx[1]), _atx_title(line.content), [line])
        else:
            self._pending.append(line)

    def _flush(self) -> Iterator[Block]:
        if self._pending:
            yield self._block("text", self._pending)
            self._pending = []

    def _block(self, kind: Kind, lines: Sequence[_Line]) -> Block:
        path = tuple(title for _, title in self._headings)
        end = lines[-1].start + len(lines[-1].content)
        return Block(kind, lines[0].start, end, path)

    def _heading(self, level: int, title: str, lines: Sequence[_Line]) -> Block:
        self._headings = [entry for entry in self._headings if entry[0] < level]
        self._headings.append((level, title))
        return self._block("heading", lines)

    def _skip_front_matter(self, lines: Sequence[_Line]) -> int:
        # The closing `---` of front matter would read as the underline of its last key.
        if self._syntax != "markdown" or not lines or lines[0].content.rstrip() != "---":
            return 0
        for index, line in enumerate(lines[1:], start=1):
            if line.content.rstrip() in ("---", "..."):
                self._pending = list(lines[: index + 1])
                return index + 1
        return 0

    def _fence_end(self, lines: Sequence[_Line], index: int) -> int | None:
        """Returns the index after a fenced block that opens at a line, None if none opens."""
        opening = _FENCE.match(lines[index].content) if self._syntax == "markdown" else None
        if opening is None or (opening[1][0] == "`" and "`" in opening[2]):
            return None
        for last in range(index + 1, len(lines)):
            closing = _FENCE.match(lines[last].content)
            if closing and closing[1].startswith(opening[1]) and not closing[2].strip():
                return last + 1
        return len(lines)

    def _underline_level(self, line: _Line) -> int | None:
        """Returns the level of the heading that a line underlines, None if it does not."""
        mark = line.content.rstrip()
        uniform = len(mark) >= _MIN_UNDERLINE and mark == mark[0] * len(mark)
        if self._syntax == "plain" or not uniform or not self._pending:
            return None
        if self._syntax == "markdown":
            return _MARKDOWN_UNDERLINES.get(mark[0]) if len(self._pending) == 1 else None
        return self._rst_level(mark)

    def _rst_level(self, mark: str) -> int | None:
        title = self._pending[-1].content.rstrip()
        overline = self._pending[0].content.rstrip() if len(self._pending) == 2 else ""
        fits = mark[0] in _RST_UNDERLINES and len(mark) >= len(title.strip())
        if not fits or not (len(self._pending) == 1 or overline == mark):
            return None
        style = mark[0] + ("/" if overline else "")
        if style not in self._rst_levels:
            self._rst_levels.append(style)
        return self._rst_levels.index(style) + 1


def _atx_title(content: str) -> str:
    title = content.strip().lstrip("#").strip()
    closed = title.rstrip("#")
    # `# C#` keeps its mark: only marks set off by a space close a heading.
    return closed.rstrip() if closed != title and closed[-1:] in ("", " ", "\t") else title
