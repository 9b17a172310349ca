"""What the user gave (documents) and what is retrieved (passages)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from specrag.errors import InputError
from specrag.retrieval.structure import Syntax, syntax_of

MetadataValue: TypeAlias = str | int | float | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """A text as the user gave it, never altered.

    Attributes:
        id: Unique name within a corpus; for files the POSIX path relative to the corpus root.
        text: The whole text, exactly as decoded (line ends included).
        source: Where it came from, such as a file path or an address.
        title: Title for people, if one is known.
        metadata: Further facts about the document, which a search can filter by.
        syntax: Markup of the text; told by the suffix of the source when it is None.
        page_starts: Offsets at which pages start, the first of them 0; empty without pages.
    """

    id: str
    text: str
    source: str
    title: str | None = None
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    syntax: Syntax | None = None
    page_starts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.id:
            raise InputError(f"a document needs an id, got {self.id!r} (source {self.source!r})")
        for name, value in self.metadata.items():
            _check_metadata(self.id, name, value)

    @property
    def markup(self) -> Syntax:
        """Markup of the text."""
        return self.syntax or syntax_of(self.source)

    def page_at(self, offset: int) -> int | None:
        """Returns the number of the page on which a character stands, None without pages.

        Args:
            offset: Of the character, in the text.
        """
        return bisect_right(self.page_starts, offset) or None


@dataclass(frozen=True, slots=True)
class Passage:
    """A stretch of a document; ``document.text[start:end] == text`` always holds.

    Attributes:
        id: Number of the passage within its index, at least 0.
        document: The id of the document it was cut from.
        text: The stretch itself.
        start: Offset of its first character in the document.
        end: Offset after its last character in the document.
        page: Page number from 1, for formats that have pages.
        heading: Path of the nearest headings, such as ``Gate > Signals``.
        line: Line of the file on which it starts, from 1, for formats that have lines.
    """

    id: int
    document: str
    text: str
    start: int
    end: int
    page: int | None = None
    heading: str | None = None
    line: int | None = None

    def __post_init__(self) -> None:
        if self.id < 0:
            raise InputError(f"a passage id must be at least 0, got {self.id}")
        if self.start < 0 or self.end - self.start != len(self.text):
            raise InputError(
                f"passage {self.id} of {self.document!r} has {len(self.text)} characters, "
                f"but its offsets are [{self.start}:{self.end}]"
            )


@dataclass(frozen=True, slots=True)
class ScoredPassage:
    """A passage with its similarity to a query.

    Attributes:
        passage: The passage found.
        score: Similarity, higher is better; comparable only within one index.
    """

    passage: Passage
    score: float


def _check_metadata(document: str, name: str, value: MetadataValue) -> None:
    """Refuses what a filter in SQLite could not compare."""
    is_odd_float = isinstance(value, float) and not math.isfinite(value)
    is_huge = isinstance(value, int) and not -(2**63) <= value < 2**63
    if is_odd_float or is_huge:
        raise InputError(
            f"the metadata {name!r} of {document!r} must be a finite number of 64 bits, "
            f"got {value!r}",
            hint="give it as a text",
        )
