"""Headings, code, rows and paragraphs of a text, as offsets. Depends on nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

Syntax = Literal["markdown", "rst", "plain", "code", "rows"]
Kind = Literal["heading", "code", "row", "text"]

_CODE_SUFFIXES = (
    ".bash .bat .c .cc .cfg .clj .cpp .cs .css .cxx .dart .el .erl .ex .exs .f90 .fs .go .gradle "
    ".graphql .groovy .h .hh .hpp .hrl .hs .ini .java .jl .js .jsx .kt .kts .less .lisp .lua .m "
    ".mjs .mk .ml .mli .nim .php .pl .pm .proto .ps1 .py .pyi .pyx .r .rb .rs .sass .scala .scm "
    ".scss .sh .sol .sql .svelte .swift .tcl .tf .toml .ts .tsx .v .vb .vhd .vue .xml .yaml .yml "
    ".zig .zsh"
)
CODE_SUFFIXES = tuple(_CODE_SUFFIXES.split())
MAX_HEADING_CHARACTERS = 200
"""Of a heading in a path, which every passage below it repeats."""

_SYNTAX_OF_SUFFIX: dict[str, Syntax] = {
    **dict.fromkeys(CODE_SUFFIXES, "code"),
    **dict.fromkeys((".md", ".markdown", ".mdx"), "markdown"),
    **dict.fromkeys((".rst", ".rest"), "rst"),
}
_LINE = re.compile(r"[^\r\n]*(?:\r\n|[\r\n])|[^\r\n]+")
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})(.*)", re.DOTALL)
_ATX = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)")
# A one-character underline is more often an empty list item than a heading.
_MIN_UNDERLINE = 3
_RST_UNDERLINES = frozenset("=-~^\"'`#*+:.<>_")
_MARKDOWN_UNDERLINES = {"=": 1, "-": 2}
_MARKDOWN_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])(?:\s|$)")
_MARKDOWN_CODE_INDENT = 4
_RST_CODE_DIRECTIVE = re.compile(
    r"\s*\.\. (?:code|code-block|doctest|ipython|parsed-literal|productionlist|sourcecode"
    r"|testcode)::"
)
# What begins a part of a program in many languages, after any number of modifiers.
_DEFINITION = re.compile(
    r"(?:(?:abstract|async|case|const|data|default|export|extern|final|inline|internal|open|override"
    r"|private|protected|pub|public|sealed|static|suspend|unsafe|virtual)\s+)*"
    r"(?:class|def|defmodule|enum|extension|fn|fun|func|function|impl|interface|macro_rules!|mod"
    r"|module|namespace|object|proc|protocol|record|struct|sub|trait|type|union)(?:\s+[\w*&<(]|<)"
)
# Comments, decorators and attributes belong to the definition below them.
_INTRODUCES = re.compile(r"@|#|//|/?\*|--|;;|\[|template\b")
_MAX_SIGNATURE_CHARACTERS = 80


class Block(NamedTuple):
    """A stretch of text that belongs together, without surrounding blank lines.

    Attributes:
        kind: ``heading``, ``code``, ``row`` (of a table or JSON) or ``text`` (a paragraph, list or
            table).
        start: Offset of its first character.
        end: Offset after its last character.
        path: The headings in effect, outermost first; a heading's own text is the last. In source
            code, the definition that it stands in.
        is_outer: False for source code that is indented, such as the second half of a function.
    """

    kind: Kind
    start: int
    end: int
    path: tuple[str, ...]
    is_outer: bool = True


class _Line(NamedTuple):
    start: int
    end: int
    content: str  # without its line end


def syntax_of(source: str) -> Syntax:
    """Returns the markup of a source, told by its suffix; ``plain`` when it is not known."""
    suffixes = PurePosixPath(source).suffixes[-2:]
    if suffixes and suffixes[-1].lower() == ".txt":
        suffixes.pop()  # Sphinx publishes its sources as `index.rst.txt`
        found = _SYNTAX_OF_SUFFIX.get(suffixes[-1].lower(), "plain") if suffixes else "plain"
        return found if found in ("markdown", "rst") else "plain"
    return _SYNTAX_OF_SUFFIX.get(suffixes[-1].lower(), "plain") if suffixes else "plain"


def blocks(text: str, syntax: Syntax) -> list[Block]:
    """Cuts a text into blocks that together hold every character but blank lines.

    Args:
        text: The text of a document.
        syntax: Its markup; ``plain`` knows paragraphs only.

    Returns:
        The blocks in the order of the text, none overlapping another.
    """
    return list(_scanned(text, syntax))


def first_heading(text: str, syntax: Syntax) -> str | None:
    """Returns the text of the first heading, or None when there is none."""
    found = (block.path[-1] for block in _scanned(text, syntax) if block.kind == "heading")
    return next((heading for heading in found if heading), None)


def _scanned(text: str, syntax: Syntax) -> Iterator[Block]:
    lines = _lines(text)
    if syntax == "code":
        return _code_blocks(lines)
    if syntax == "rows":
        return (_joined("row", group, ()) for group in _paragraphs(lines))
    return _Scanner(syntax).scan(lines)


def _lines(text: str) -> list[_Line]:
    found = _LINE.finditer(text)
    return [_Line(m.start(), m.end(), m.group().rstrip("\r\n")) for m in found]


def _joined(
    kind: Kind, lines: Sequence[_Line], path: tuple[str, ...], is_outer: bool = True
) -> Block:
    return Block(kind, lines[0].start, lines[-1].start + len(lines[-1].content), path, is_outer)


def _paragraphs(lines: Sequence[_Line]) -> Iterator[list[_Line]]:
    group: list[_Line] = []
    for line in lines:
        if line.content.strip():
            group.append(line)
        elif group:
            yield group
            group = []
    if group:
        yield group


def _code_blocks(lines: Sequence[_Line]) -> Iterator[Block]:
    """Yields stretches between blank lines, cut before outer definitions."""
    path: tuple[str, ...] = ()
    for group in _paragraphs(lines):
        if _is_outer(group[0].content):
            path = ()
        first = 0
        for index, line in enumerate(group):
            if not _DEFINITION.match(line.content):
                continue
            if index > first and not _INTRODUCES.match(group[index - 1].content):
                yield _joined("code", group[first:index], path, _is_outer(group[first].content))
                first = index
            path = (line.content.rstrip(" \t{:(")[:_MAX_SIGNATURE_CHARACTERS],)
        yield _joined("code", group[first:], path, _is_outer(group[first].content))


def _is_outer(content: str) -> bool:
    return not (content[0].isspace() or content[0] in ")]}")


class _Scanner:
    """Walks the lines once; ``_pending`` are lines of a paragraph that has not ended yet."""

    def __init__(self, syntax: Syntax) -> None:
        self._syntax = syntax
        self._pending: list[_Line] = []
        self._headings: list[tuple[int, str]] = []
        self._rst_levels: list[str] = []
        self._in_list = False  # Markdown: indented text continues an item
        self._literal_indent: int | None = None  # rst: what is indented more is code

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
            yield self._block("code" if self._is_indented_code() else "text", self._pending)
            self._pending = []

    def _is_indented_code(self) -> bool:
        """Tells whether the pending lines are code by their indentation, and looks ahead."""
        first, last = self._pending[0].content, self._pending[-1].content.rstrip()
        indent = min(map(_indent, self._pending))
        if self._syntax == "markdown":
            is_code = indent >= _MARKDOWN_CODE_INDENT and not self._in_list
            if indent == 0 or _MARKDOWN_ITEM.match(first):
                self._in_list = _MARKDOWN_ITEM.match(first) is not None
            return is_code
        if self._syntax == "rst":
            if self._literal_indent is not None and indent > self._literal_indent:
                return True
            is_directive = first.lstrip().startswith(".. ")
            opens = _RST_CODE_DIRECTIVE.match(first) if is_directive else last.endswith("::")
            self._literal_indent = _indent(self._pending[0]) if opens else None
        return False

    def _block(self, kind: Kind, lines: Sequence[_Line]) -> Block:
        return _joined(kind, lines, tuple(title for _, title in self._headings))

    def _heading(self, level: int, title: str, lines: Sequence[_Line]) -> Block:
        self._headings = [entry for entry in self._headings if entry[0] < level]
        self._headings.append((level, title[:MAX_HEADING_CHARACTERS].rstrip()))
        self._in_list, self._literal_indent = False, None
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


def _indent(line: _Line) -> int:
    stripped = line.content.expandtabs(4)
    return len(stripped) - len(stripped.lstrip())


def _atx_title(content: str) -> str:
    title = content.strip().lstrip("#").strip()
    closed = title.rstrip("#")
    # `# C#` keeps its mark: only marks set off by a space close a heading.
    return closed.rstrip() if closed != title and closed[-1:] in ("", " ", "\t") else title
