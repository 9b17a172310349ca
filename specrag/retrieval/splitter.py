"""Cuts documents into passages along their structure, measured in an encoder's tokens."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple

from specrag.errors import ConfigError
from specrag.retrieval.document import Document, Passage
from specrag.retrieval.sentences import (
    MAX_WORD_CHARACTERS,
    Span,
    line_spans,
    sentence_spans,
    spaced,
    word_spans,
)
from specrag.retrieval.structure import Block, Kind, blocks, syntax_of

# Raised whenever the same document would be cut differently, so that old indexes are rebuilt.
SPLITTER_VERSION = 1
HEADING_SEPARATOR = " > "

_ROW_SUFFIXES = (".csv", ".json", ".jsonl", ".ndjson", ".tsv")
_LINE_END = re.compile(r"\r\n?|\n")
_ANY_KIND: frozenset[Kind] = frozenset(("heading", "code", "row", "text"))

TokenCounter = Callable[[Sequence[str]], list[int]]


class _Unit(NamedTuple):
    """A stretch that is not cut further: a sentence, code block, heading, or part of one."""

    start: int
    end: int
    num_tokens: int
    block: Block
    section: int


@dataclass(frozen=True, slots=True)
class Splitter:
    """Cuts documents into passages of at most ``chunk_size`` tokens.

    A passage never crosses a heading, except that headings without text of their own stay with
    the text below them. Code blocks and rows that fit stay whole, and source code is cut before
    what stands at its outer level where that leaves a passage at least half full. What is too long
    for a passage is cut at the coarsest border that helps: sentences, then lines, then words; code
    and rows at lines first. Token counts of the parts are added up, which is exact for tokenizers
    that split at whitespace first.

    Attributes:
        chunk_size: Most tokens in a passage; only a single word longer than that exceeds it.
        chunk_overlap: Most tokens that a passage repeats from the one before, in whole sentences.
        count_tokens: Gives the number of tokens of each text, without special tokens.
    """

    chunk_size: int
    chunk_overlap: int
    count_tokens: TokenCounter

    def __post_init__(self) -> None:
        check_chunking(self.chunk_size, self.chunk_overlap)

    def split(self, document: Document, first_id: int = 0) -> list[Passage]:
        """Cuts a document into passages.

        Args:
            document: The document; its markup tells what its borders are.
            first_id: Id of the first passage; the others count up from it.

        Returns:
            Passages with strictly increasing starts that together hold every character that is
            not whitespace; empty when the document is blank.
        """
        units = self._units(document)
        ranges = self._ranges(units)
        line_starts = _line_starts(document) if units and _has_lines(document) else None
        return [
            _passage(document, units[first:last], first_id + number, line_starts)
            for number, (first, last) in enumerate(ranges)
        ]

    def _units(self, document: Document) -> list[_Unit]:
        text = document.text
        spans = list(_initial_units(text, blocks(text, document.markup)))
        units = self._measured(text, spans)
        for divide, kinds in (
            (line_spans, _ANY_KIND),
            (sentence_spans, frozenset[Kind](("row",))),
            (self._word_groups, _ANY_KIND),
        ):
            units = list(self._refined(text, units, divide, kinds))
        return units

    def _measured(self, text: str, units: Sequence[_Unit]) -> list[_Unit]:
        counts = self.count_tokens([spaced(text[unit.start : unit.end]) for unit in units])
        # What a tokenizer drops still takes room in a prompt, so length sets a floor.
        floors = (1 + (unit.end - unit.start - 1) // MAX_WORD_CHARACTERS for unit in units)
        return [
            unit._replace(num_tokens=max(count, floor))
            for unit, count, floor in zip(units, counts, floors, strict=True)
        ]

    def _refined(
        self,
        text: str,
        units: Sequence[_Unit],
        divide: Callable[[str, int, int], list[Span]],
        kinds: frozenset[Kind],
    ) -> Iterator[_Unit]:
        """Yields the units, those of some kinds that are too long replaced by measured parts."""
        parts: dict[int, list[_Unit]] = {}
        for number, unit in enumerate(units):
            if unit.num_tokens > self.chunk_size and unit.block.kind in kinds:
                spans = divide(text, unit.start, unit.end)
                parts[number] = [unit._replace(start=start, end=end) for start, end in spans]
        measured = iter(self._measured(text, [part for group in parts.values() for part in group]))
        for number, unit in enumerate(units):
            if number in parts:
                yield from (next(measured) for _ in parts[number])
            else:
                yield unit

    def _word_groups(self, text: str, start: int, end: int) -> list[Span]:
        """Groups the words of a stretch into as few spans of ``chunk_size`` tokens as go."""
        words = word_spans(text, start, end)
        counts = [max(1, n) for n in self.count_tokens([text[left:right] for left, right in words])]
        groups: list[Span] = []
        room = 0
        for (left, right), count in zip(words, counts, strict=True):
            if groups and count <= room:
                groups[-1] = (groups[-1][0], right)
            else:
                groups.append((left, right))
                room = self.chunk_size
            room -= count
        return groups

    def _ranges(self, units: Sequence[_Unit]) -> Iterator[tuple[int, int]]:
        """Yields the range [first, last) of the units of each passage."""
        first = fresh = 0
        while first < len(units):
            last = self._fill(units, first, fresh)
            yield first, last
            first, fresh = self._next_first(units, first, last), last

    def _fill(self, units: Sequence[_Unit], first: int, fresh: int) -> int:
        """Returns the index after the last unit of a passage; ``fresh`` is its first new unit."""
        room = self.chunk_size - units[first].num_tokens
        border = outer_border = None
        for last in range(first + 1, len(units)):
            unit, previous = units[last], units[last - 1]
            if unit.section != previous.section:
                return last
            # A passage at least half full had better end with a paragraph than within the next.
            if unit.block is not previous.block and last > fresh and 2 * room <= self.chunk_size:
                border = last
                outer_border = last if unit.block.is_outer else outer_border
            room -= unit.num_tokens
            if room < 0:
                return outer_border or border or last
        return len(units)

    def _next_first(self, units: Sequence[_Unit], first: int, last: int) -> int:
        if last == len(units) or units[last].section != units[first].section:
            return last
        # The overlap must leave room for the next unit, or the passage would bring nothing new,
        # and must not reach the start of the last passage, or starts would not increase.
        room = min(self.chunk_overlap, self.chunk_size - units[last].num_tokens)
        start = last
        while start - 1 > first and units[start - 1].num_tokens <= room:
            start -= 1
            room -= units[start].num_tokens
        return start


def check_chunking(chunk_size: int, chunk_overlap: int) -> None:
    """Refuses sizes that cannot be used.

    Args:
        chunk_size: Most tokens in a passage.
        chunk_overlap: Most tokens shared by neighbouring passages.

    Raises:
        ConfigError: The size is not positive, or the overlap is negative or not below it.
    """
    if chunk_size < 1:
        raise ConfigError(f"chunk_size must be at least 1 token, got {chunk_size}")
    if not 0 <= chunk_overlap < chunk_size:
        raise ConfigError(
            f"chunk_overlap must be from 0 to {chunk_size - 1} (below chunk_size), "
            f"got {chunk_overlap}"
        )


def _initial_units(text: str, found: Iterable[Block]) -> Iterator[_Unit]:
    section, previous = 0, ""
    for block in found:
        if block.kind == "heading" and previous != "heading":
            section += 1
        previous = block.kind
        whole = block.kind != "text"
        start, end = block.start, block.end
        spans = _stripped(text, start, end) if whole else sentence_spans(text, start, end)
        for left, right in spans:
            yield _Unit(left, right, 0, block, section)


def _stripped(text: str, start: int, end: int) -> list[Span]:
    # Leading spaces stay: they are the indentation of code.
    return [(start, start + len(text[start:end].rstrip()))]


def _has_lines(document: Document) -> bool:
    """Tells whether the lines of the text are those of the file."""
    # Of pages, HTML and tables the text is made, so its lines are found nowhere else.
    is_made = document.page_starts or document.markup != syntax_of(document.source)
    return not is_made and PurePosixPath(document.source).suffix.lower() not in _ROW_SUFFIXES


def _line_starts(document: Document) -> list[int]:
    return [0, *(match.end() for match in _LINE_END.finditer(document.text))]


def _passage(
    document: Document, units: Sequence[_Unit], passage_id: int, line_starts: Sequence[int] | None
) -> Passage:
    start, end = units[0].start, units[-1].end
    # Headings at the front belong to the first text below them, so its path is the nearest.
    body = next((unit for unit in units if unit.block.kind != "heading"), units[-1])
    heading = HEADING_SEPARATOR.join(filter(None, body.block.path))
    return Passage(
        passage_id,
        document.id,
        document.text[start:end],
        start,
        end,
        page=document.page_at(start),
        heading=heading or None,
        line=bisect_right(line_starts, start) if line_starts is not None else None,
    )
