"""Writes the structure of rich documents as Markdown. Depends on nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence

_SPACES = re.compile(r"[^\S\n]+")
_LINE_EDGES = re.compile(r" ?\n[ \n]*")
_MARKUP = re.compile(r"^(?=#{1,6}(?:[ \t]|$)|```|~~~|(?:={3,}|-{3,})[ \t]*$|\|)", re.MULTILINE)
_TICKS = re.compile(r"`{3,}")
_TIGHT = ("item", "row")  # follow each other without a blank line


class MarkdownWriter:
    """Collects blocks; text that would read as markup of its own gets a backslash before it.

    Attributes:
        num_characters: How much was written so far.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._last_kind = ""
        self.num_characters = 0

    @property
    def text(self) -> str:
        """All that was written."""
        return "".join(self._parts)

    def heading(self, level: int, text: str) -> None:
        """Writes a heading.

        Args:
            level: From 1, the outermost; below 6 they are all alike.
            text: Line ends in it become spaces.
        """
        if title := one_line(text):
            self._put("heading", f"{'#' * min(max(level, 1), 6)} {title}")

    def paragraph(self, text: str) -> None:
        """Writes a paragraph.

        Args:
            text: Line ends in it are kept, runs of spaces are not.
        """
        if body := _LINE_EDGES.sub("\n", _SPACES.sub(" ", text)).strip():
            self._put("paragraph", _MARKUP.sub(r"\\", body))

    def item(self, mark: str, text: str, depth: int = 0) -> None:
        """Writes an item of a list.

        Args:
            mark: Such as ``-`` or ``1.``.
            text: Line ends in it become spaces.
            depth: How many lists it is nested in; deeper ones than 1 look alike.
        """
        if body := one_line(text):
            self._put("item", f"{'  ' * min(depth, 1)}{mark} {body}")

    def row(self, cells: Sequence[str]) -> None:
        """Writes a row of a table.

        Args:
            cells: Their texts.
        """
        texts = [one_line(cell).replace("|", "\\|") for cell in cells]
        if any(texts):
            self._put("row", f"| {' | '.join(texts)} |")

    def code(self, text: str) -> None:
        """Writes lines whose spaces count.

        Args:
            text: The lines.
        """
        body = text.strip("\r\n").rstrip()
        if body.strip():
            longest = max(map(len, _TICKS.findall(body)), default=2)
            fence = "`" * max(3, longest + 1)
            self._put("code", f"{fence}\n{body}\n{fence}")

    def end_list(self) -> None:
        """Sets what follows off from the rows or items before it."""
        self._last_kind = ""

    def _put(self, kind: str, text: str) -> None:
        tight = kind == self._last_kind and kind in _TIGHT
        if self._parts:
            self._parts.append("\n" if tight else "\n\n")
        self._parts.append(text)
        self._last_kind = kind
        self.num_characters += len(text) + 2


def one_line(text: str) -> str:
    """Returns a text with every run of spaces and line ends as one space.

    Args:
        text: The text.
    """
    return " ".join(text.split())
