"""Which passages hold a term and how often: packed into bytes, and gathered in bounded memory."""

from __future__ import annotations

import heapq
import sqlite3
from array import array
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import groupby, pairwise
from operator import itemgetter
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_WIDTHS: dict[int, np.dtype[Any]] = {1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4")}
_HELD_BYTES = 256 << 20
_POSTING_BYTES, _TERM_BYTES = 10, 220  # in memory, about


class Postings(NamedTuple):
    """The passages that hold one term.

    Attributes:
        places: Their places among the passages of the index, ascending, [num_passages].
        counts: How often each holds the term, [num_passages].
    """

    places: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]


def pack(postings: Postings) -> bytes:
    """Returns postings as bytes: gaps between places and counts, each in the fewest bytes.

    Args:
        postings: At least one.
    """
    gaps = postings.places.copy()
    gaps[1:] -= postings.places[:-1]
    widths = [_width(values) for values in (gaps, postings.counts)]
    parts = [gaps.astype(_WIDTHS[widths[0]]), postings.counts.astype(_WIDTHS[widths[1]])]
    return bytes(widths) + b"".join(part.tobytes() for part in parts)


def unpack(data: bytes) -> Postings:
    """Returns the postings that were packed.

    Args:
        data: From ``pack``.

    Raises:
        ValueError: The bytes are no packed postings.
    """
    if len(data) < 2 or data[0] not in _WIDTHS or data[1] not in _WIDTHS:
        raise ValueError(f"no packed postings: {data[:8]!r}")
    length, rest = divmod(len(data) - 2, data[0] + data[1])
    if rest or not length:
        raise ValueError(f"packed postings are cut off after {len(data)} bytes")
    gaps = np.frombuffer(data, _WIDTHS[data[0]], length, offset=2)
    counts = np.frombuffer(data, _WIDTHS[data[1]], length, offset=2 + length * data[0])
    return Postings(np.cumsum(gaps, dtype=np.int64), counts.astype(np.int64))


class TermRecord(NamedTuple):
    """What an index holds of one term.

    Attributes:
        term: The term.
        num_holding: Passages that have it as a content word.
        postings: Passages that are found by it; may be none.
    """

    term: str
    num_holding: int
    postings: Postings


class PostingsWriter:
    """Gathers the terms of passages, and gives them back term by term.

    What exceeds 256 MiB is sorted by term and put into a temporary database, which SQLite keeps
    in a file without a name; in the end these runs are merged. So memory does not grow with the
    number of passages, only the longest list of postings must fit.

    Args:
        held_bytes: Most memory for postings that are not sorted yet, about.
    """

    def __init__(self, held_bytes: int = _HELD_BYTES) -> None:
        self._most = held_bytes
        self._held: dict[str, array[int]] = {}
        self._held_bytes = 0
        self._ends = [0]  # row numbers after which a run ends
        self._runs = sqlite3.connect("")
        self._runs.executescript(
            "PRAGMA journal_mode = OFF; CREATE TABLE runs (term TEXT, postings BLOB)"
        )

    def __enter__(self) -> PostingsWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._runs.close()

    def add(self, place: int, counts: Mapping[str, int], content: AbstractSet[str]) -> None:
        """Adds a passage.

        Args:
            place: Of the passage, above all before.
            counts: How often it holds each search term.
            content: Its content words.
        """
        terms = counts.keys() | content
        num_known = len(self._held)
        for term in terms:
            held = self._held.get(term)
            if held is None:
                held = self._held[term] = array("I")
            held.append(place)
            held.append(counts.get(term, 0) << 1 | (term in content))
        self._held_bytes += len(terms) * _POSTING_BYTES
        self._held_bytes += (len(self._held) - num_known) * _TERM_BYTES
        if self._held_bytes > self._most:
            self._put_aside()

    def finish(self) -> Iterator[TermRecord]:
        """Yields each term, in the order of characters."""
        held = ((term, self._held[term].tobytes()) for term in sorted(self._held))
        runs = [self._run(*bounds) for bounds in pairwise(self._ends)]
        # Runs come in the order they were put aside, and the merge keeps it for equal terms.
        merged = heapq.merge(*runs, held, key=itemgetter(0))
        for term, parts in groupby(merged, key=itemgetter(0)):
            pairs = np.frombuffer(b"".join(part for _, part in parts), np.uint32)
            places, marks = pairs[::2].astype(np.int64), pairs[1::2].astype(np.int64)
            found = marks > 1
            postings = Postings(places[found], marks[found] >> 1)
            yield TermRecord(term, int(np.count_nonzero(marks & 1)), postings)

    def _put_aside(self) -> None:
        rows = ((term, self._held[term].tobytes()) for term in sorted(self._held))
        self._runs.executemany("INSERT INTO runs VALUES (?, ?)", rows)
        self._ends.append(self._ends[-1] + len(self._held))
        self._held.clear()
        self._held_bytes = 0

    def _run(self, start: int, end: int) -> Iterator[tuple[str, bytes]]:
        statement = "SELECT term, postings FROM runs WHERE rowid > ? AND rowid <= ? ORDER BY rowid"
        return iter(self._runs.execute(statement, (start, end)))


def _width(values: npt.NDArray[np.int64]) -> int:
    largest = int(values.max())
    return 1 if largest < 1 << 8 else 2 if largest < 1 << 16 else 4
