"""Finds passages by their words (BM25); one SQLite file for each immutable segment of an index."""

from __future__ import annotations

import math
import sqlite3
import threading
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from specrag.errors import IndexFormatError, InputError
from specrag.retrieval.postings import Postings, PostingsWriter, pack, unpack
from specrag.retrieval.terms import TERMS_VERSION, content_words, query_terms, search_terms

Ids = npt.NDArray[np.int64]
Hits = list[tuple[float, int]]

# How fast repetition stops counting, and how much length does: the middle of what Robertson and
# Zaragoza recommend ("The Probabilistic Relevance Framework", 2009), and Lucene's defaults.
_K1, _B = 1.2, 0.75

# ``num_holding`` counts the passages that have the term as a content word, which is not quite
# the number of its postings: parts of compounds and common words have postings alone.
_SCHEMA = """
PRAGMA synchronous = OFF;
PRAGMA journal_mode = MEMORY;
CREATE TABLE passages (
    num_passages INTEGER NOT NULL,
    num_words INTEGER NOT NULL,
    ids BLOB NOT NULL,
    lengths BLOB NOT NULL
);
CREATE TABLE terms (
    term TEXT PRIMARY KEY,
    num_holding INTEGER NOT NULL,
    postings BLOB
);
"""
# SQLite limits the parameters of one statement; older builds allow 999.
_MAX_PARAMETERS = 900


class _Passages(NamedTuple):
    ids: Ids  # ascending, [num_passages]
    lengths: Ids  # in terms, [num_passages]


class LexicalIndex:
    """The terms of one segment.

    May be used from several threads; a lock lets one at a time use the connection.
    Made by ``open``, from a file made by ``write``.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._lock = threading.Lock()
        version = self._rows("PRAGMA user_version")[0][0]
        if version != TERMS_VERSION:
            raise IndexFormatError(
                f"the terms in {str(path)!r} have version {version}, not {TERMS_VERSION}",
                hint="build the index again",
            )
        found = self._rows("SELECT num_passages, num_words FROM passages")
        if len(found) != 1:
            raise IndexFormatError(f"the terms in {str(path)!r} are incomplete")
        self.num_passages, self.num_words = (int(number) for number in found[0])

    @classmethod
    def write(cls, path: Path, passages: Iterable[tuple[int, str]]) -> None:
        """Makes the file of a segment.

        Memory stays within some hundred MiB however many the passages are; see
        ``PostingsWriter``. Writes are not forced to disk: whoever publishes the file does that.

        Args:
            path: The file to make.
            passages: Ids, ascending, and the text of each that is to be found, heading included.

        Raises:
            InputError: The file exists already or cannot be made.
        """
        if path.exists():
            raise InputError(f"cannot write terms to {str(path)!r}: the file exists already")
        try:
            connection = sqlite3.connect(path)
            try:
                with connection:
                    connection.executescript(_SCHEMA)
                    connection.execute(f"PRAGMA user_version = {TERMS_VERSION}")
                    _fill(connection, passages)
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise InputError(f"cannot write terms to {str(path)!r}: {error}") from error

    @classmethod
    def open(cls, path: Path) -> LexicalIndex:
        """Opens a finished file for reading; no other process may change it meanwhile.

        Args:
            path: A file made by ``write``.

        Raises:
            IndexFormatError: The file is missing, damaged, no such file, or of another version.
        """
        # `immutable`: no locks to take, and no stray journal is rolled back into a checked file.
        uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        try:
            connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
        except sqlite3.Error as error:
            raise IndexFormatError(f"cannot open the terms {str(path)!r}: {error}") from error
        try:
            return cls(path, connection)
        except IndexFormatError:
            connection.close()
            raise

    def close(self) -> None:
        """Closes the file; the index cannot be used afterwards."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> LexicalIndex:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def passages_with(self, terms: Sequence[str]) -> dict[str, int]:
        """Returns how many passages hold each content word; unknown ones are left out.

        Args:
            terms: Content words, as ``terms.content_words`` gives them.
        """
        rows = self._find("SELECT term, num_holding FROM terms WHERE term IN ({marks})", terms)
        return {term: count for term, count in rows if count}

    def postings(self, terms: Sequence[str]) -> dict[str, Postings]:
        """Returns the postings of each term; unknown ones are left out.

        Args:
            terms: As ``terms.search_terms`` gives them.

        Raises:
            IndexFormatError: The file is damaged.
        """
        rows = self._find("SELECT term, postings FROM terms WHERE term IN ({marks})", terms)
        try:
            found = {term: unpack(data) for term, data in rows if data}
        except ValueError as error:
            raise IndexFormatError(f"the terms in {str(self._path)!r}: {error}") from error
        if any(held.places[-1] >= self.num_passages for held in found.values()):
            raise IndexFormatError(f"the terms in {str(self._path)!r} name unknown passages")
        return found

    @cached_property
    def passages(self) -> _Passages:
        """Ids and lengths of all passages, in the order of ids; read when first asked for."""
        ids, lengths = self._rows("SELECT ids, lengths FROM passages")[0]
        if (len(ids), len(lengths)) != (8 * self.num_passages, 4 * self.num_passages):
            raise IndexFormatError(f"the terms in {str(self._path)!r} are incomplete")
        return _Passages(
            np.frombuffer(ids, "<i8").astype(np.int64),
            np.frombuffer(lengths, "<u4").astype(np.int64),
        )

    def _find(self, statement: str, terms: Sequence[str]) -> list[Any]:
        rows = []
        for first in range(0, len(terms), _MAX_PARAMETERS):
            part = terms[first : first + _MAX_PARAMETERS]
            rows += self._rows(statement.format(marks=",".join("?" * len(part))), *part)
        return rows

    def _rows(self, statement: str, *parameters: object) -> list[Any]:
        try:
            with self._lock:
                return self._connection.execute(statement, parameters).fetchall()
        except sqlite3.Error as error:
            path = str(self._path)
            raise IndexFormatError(f"cannot read the terms {path!r}: {error}") from error


def bm25_search(
    indexes: Sequence[LexicalIndex],
    query: str,
    k: int,
    allowed: Sequence[Ids | None] | None = None,
    excluded: Sequence[Ids | None] | None = None,
) -> Hits:
    """Finds the passages that share rare words with a query, over all segments of an index.

    The score is BM25 as in Robertson and Zaragoza (2009), with Lucene's inverse document
    frequency ``ln(1 + (N - n + 0.5) / (n + 0.5))``, which is never negative. Numbers of passages
    and lengths are summed over the segments, so the scores do not depend on how passages are
    spread over them. Excluded passages still count in these sums until compaction.

    Args:
        indexes: The segments; no passage is in two of them.
        query: The query.
        k: Most passages, at least 1.
        allowed: For each segment the ids that may be found; None for all.
        excluded: For each segment the ids that may not be found; None for none.

    Returns:
        Scores above 0 with passage ids, best first; equal scores in the order of ids.

    Raises:
        InputError: k is below 1.
    """
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}")
    asked = query_terms(query)
    # Sorted, so that a score is summed in the same order whatever the segments are.
    found = [index.postings(sorted(asked)) for index in indexes]
    num_passages = sum(index.num_passages for index in indexes)
    num_words = sum(index.num_words for index in indexes)
    holding: Counter[str] = Counter()
    for postings in found:
        holding.update({term: len(held.places) for term, held in postings.items()})
    weights = {
        term: asked[term] * math.log1p((num_passages - holding[term] + 0.5) / (holding[term] + 0.5))
        for term in sorted(holding)
    }
    hits: Hits = []
    for place, index in enumerate(indexes):
        if found[place]:
            scores = _scores(index, found[place], weights, num_words / num_passages)
            scores = _selected(index, scores, _at(allowed, place), _at(excluded, place))
            hits += _best(index.passages.ids, scores, k)
    return sorted(hits, key=lambda hit: (-hit[0], hit[1]))[:k]


def _fill(connection: sqlite3.Connection, passages: Iterable[tuple[int, str]]) -> None:
    ids, lengths = array("q"), array("I")
    with PostingsWriter() as writer:
        for number, text in passages:
            assert not ids or number > ids[-1], "passages come in the order of their ids"
            counts = search_terms(text)
            writer.add(len(ids), counts, content_words(text))
            ids.append(number)
            lengths.append(counts.total())
        rows = (
            (term, num_holding, pack(postings) if len(postings.places) else None)
            for term, num_holding, postings in writer.finish()
        )
        connection.executemany("INSERT INTO terms VALUES (?, ?, ?)", rows)
    blobs = (np.array(ids, dtype="<i8").tobytes(), np.array(lengths, dtype="<u4").tobytes())
    values = (len(ids), sum(lengths), *blobs)
    connection.execute("INSERT INTO passages VALUES (?, ?, ?, ?)", values)


def _scores(
    index: LexicalIndex,
    postings: dict[str, Postings],
    weights: dict[str, float],
    mean_length: float,
) -> npt.NDArray[np.float64]:
    scores = np.zeros(index.num_passages)
    for term, weight in weights.items():
        if term in postings:
            places, counts = postings[term]
            length = index.passages.lengths[places] / mean_length
            scores[places] += weight * counts / (counts + _K1 * (1 - _B + _B * length))
    return scores


def _selected(
    index: LexicalIndex,
    scores: npt.NDArray[np.float64],
    allowed: Ids | None,
    excluded: Ids | None,
) -> npt.NDArray[np.float64]:
    ids = index.passages.ids
    if allowed is not None:
        scores = np.where(_among(ids, allowed), scores, 0.0)
    if excluded is not None:
        scores = np.where(_among(ids, excluded), 0.0, scores)
    return scores


def _among(ids: Ids, chosen: Ids) -> npt.NDArray[np.bool_]:
    """Tells for each id, which ascend, whether it was chosen."""
    mask = np.zeros(len(ids), dtype=np.bool_)
    if len(ids):
        places = np.minimum(np.searchsorted(ids, chosen), len(ids) - 1)
        mask[places[ids[places] == chosen]] = True
    return mask


def _best(ids: Ids, scores: npt.NDArray[np.float64], k: int) -> Hits:
    places = np.flatnonzero(scores > 0)
    if len(places) > k:
        least = np.partition(scores[places], len(places) - k)[len(places) - k]
        places = places[scores[places] >= least]  # more than k where scores are equal
    order = places[np.lexsort((ids[places], -scores[places]))][:k]
    return list(zip(scores[order].tolist(), ids[order].tolist(), strict=True))


def _at(selections: Sequence[Ids | None] | None, place: int) -> Ids | None:
    return None if selections is None else selections[place]
