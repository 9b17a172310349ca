"""Keeps documents and passages in one SQLite file; knows ids and texts, no vectors."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from specrag.errors import IndexFormatError, InputError
from specrag.retrieval.document import Document, Passage
from specrag.retrieval.terms import content_words

_SCHEMA = """
CREATE TABLE documents (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    text TEXT NOT NULL,
    source TEXT NOT NULL,
    title TEXT,
    metadata TEXT NOT NULL,
    num_characters INTEGER NOT NULL
);
CREATE TABLE passages (
    id INTEGER PRIMARY KEY,
    document INTEGER NOT NULL REFERENCES documents (number),
    text TEXT NOT NULL,
    start INTEGER NOT NULL,
    "end" INTEGER NOT NULL,
    page INTEGER,
    heading TEXT
);
CREATE INDEX passages_of_document ON passages (document);
CREATE TABLE terms (
    term TEXT PRIMARY KEY,
    num_passages INTEGER NOT NULL
) WITHOUT ROWID;
"""
_INSERT_DOCUMENT = "INSERT INTO documents VALUES (NULL, ?, ?, ?, ?, ?, ?)"
_INSERT_PASSAGE = "INSERT INTO passages VALUES (?, ?, ?, ?, ?, ?, ?)"
_COUNT_TERM = """
INSERT INTO terms VALUES (?, 1) ON CONFLICT (term) DO UPDATE SET num_passages = num_passages + 1
"""
_SELECT_PASSAGES = """
SELECT p.id, d.id, p.text, p.start, p."end", p.page, p.heading
FROM passages AS p JOIN documents AS d ON d.number = p.document WHERE p.id IN ({marks})
"""
_SELECT_DOCUMENTS = """
SELECT d.id, d.source, d.title, d.metadata, d.num_characters, count(p.id)
FROM documents AS d LEFT JOIN passages AS p ON p.document = d.number
GROUP BY d.number ORDER BY d.number
"""
# SQLite limits the parameters of one statement; older builds allow 999.
_MAX_PARAMETERS = 900


class DocumentInfo(NamedTuple):
    """What a store knows of a document, without its text.

    Attributes:
        id: The document's id.
        source: Where it came from.
        title: Its title, if known.
        metadata: Further facts.
        num_characters: Length of its text.
        num_passages: Passages cut from it.
    """

    id: str
    source: str
    title: str | None
    metadata: dict[str, str]
    num_characters: int
    num_passages: int


class PassageStore:
    """Maps passage ids to passages and document ids to texts.

    May be used from several threads; a lock lets one at a time use the connection.
    Made by ``create`` or ``open``.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    @classmethod
    def create(cls, path: Path) -> PassageStore:
        """Makes an empty store.

        Writes are not forced to disk one by one: whoever publishes the file does that once.

        Args:
            path: The file to make.

        Raises:
            InputError: The file exists already or cannot be made.
        """
        if path.exists():
            raise InputError(f"cannot make a store at {str(path)!r}: the file exists already")
        try:
            connection = sqlite3.connect(path, check_same_thread=False)
            connection.executescript(f"PRAGMA synchronous = OFF; {_SCHEMA}")
        except sqlite3.Error as error:
            raise InputError(f"cannot make a store at {str(path)!r}: {error}") from error
        return cls(connection)

    @classmethod
    def open(cls, path: Path) -> PassageStore:
        """Opens a finished store for reading; no other process may change it meanwhile.

        Args:
            path: A file made by ``create``.

        Raises:
            IndexFormatError: The file is missing, damaged or no store.
        """
        # `immutable`: no locks to take, and no stray journal is rolled back into a checked file.
        uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        try:
            store = cls(sqlite3.connect(uri, uri=True, check_same_thread=False))
        except sqlite3.Error as error:
            raise IndexFormatError(f"cannot open the store {str(path)!r}: {error}") from error
        try:
            store.count()
        except sqlite3.Error as error:
            store.close()
            raise IndexFormatError(f"cannot read the store {str(path)!r}: {error}") from error
        return store

    def close(self) -> None:
        """Closes the file; the store cannot be used afterwards."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> PassageStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def put(self, document: Document, passages: Sequence[Passage]) -> None:
        """Adds a document with its passages, all or nothing.

        Args:
            document: The document; its id must be new to the store.
            passages: Its passages; their ids must be new to the store.

        Raises:
            InputError: An id is known already, a passage belongs to another document, or a text
                cannot be encoded as UTF-8.
        """
        strange = [passage for passage in passages if passage.document != document.id]
        if strange:
            raise InputError(
                f"passage {strange[0].id} belongs to {strange[0].document!r}, not {document.id!r}"
            )
        try:
            with self._lock, self._connection:
                self._insert(document, passages)
        except (sqlite3.IntegrityError, sqlite3.OperationalError, UnicodeEncodeError) as error:
            raise InputError(f"cannot store the document {document.id!r}: {error}") from error

    def get(self, ids: Sequence[int]) -> list[Passage]:
        """Returns passages in the order of their ids.

        Args:
            ids: Passage ids; may repeat.

        Raises:
            InputError: An id is not in the store.
        """
        found: dict[int, Passage] = {}
        for first in range(0, len(ids), _MAX_PARAMETERS):
            part = ids[first : first + _MAX_PARAMETERS]
            marks = ",".join("?" * len(part))
            for row in self._rows(_SELECT_PASSAGES.format(marks=marks), *map(int, part)):
                found[row[0]] = Passage(*row)
        missing = [number for number in ids if number not in found]
        if missing:
            raise InputError(f"no passage has the id {missing[0]}")
        return [found[number] for number in ids]

    def documents(self) -> list[DocumentInfo]:
        """Lists the documents in the order they were put."""
        return [
            DocumentInfo(key, source, title, json.loads(metadata), num_characters, num_passages)
            for key, source, title, metadata, num_characters, num_passages in self._rows(
                _SELECT_DOCUMENTS
            )
        ]

    def document_text(self, document: str) -> str:
        """Returns the whole text of a document.

        Args:
            document: Its id.

        Raises:
            InputError: The store has no such document.
        """
        rows = self._rows("SELECT text FROM documents WHERE id = ?", document)
        if not rows:
            raise InputError(f"no document has the id {document!r}")
        return str(rows[0][0])

    def count(self) -> int:
        """Returns the number of passages."""
        return int(self._rows("SELECT count(*) FROM passages")[0][0])

    def passages_with(self, terms: Sequence[str]) -> dict[str, int]:
        """Returns how many passages hold each term, in text or heading; unknown ones are left out.

        Args:
            terms: Content words, as ``terms.content_words`` gives them.
        """
        found: dict[str, int] = {}
        for first in range(0, len(terms), _MAX_PARAMETERS):
            part = terms[first : first + _MAX_PARAMETERS]
            marks = ",".join("?" * len(part))
            statement = f"SELECT term, num_passages FROM terms WHERE term IN ({marks})"
            found.update(self._rows(statement, *part))
        return found

    def _insert(self, document: Document, passages: Sequence[Passage]) -> None:
        d = document
        metadata = json.dumps(dict(d.metadata), ensure_ascii=False, sort_keys=True)
        values = (d.id, d.text, d.source, d.title, metadata, len(d.text))
        number = self._connection.execute(_INSERT_DOCUMENT, values).lastrowid
        self._connection.executemany(
            _INSERT_PASSAGE,
            ((p.id, number, p.text, p.start, p.end, p.page, p.heading) for p in passages),
        )
        for passage in passages:
            words = content_words(f"{passage.heading or ''} {passage.text}")
            self._connection.executemany(_COUNT_TERM, ((word,) for word in sorted(words)))

    def _rows(self, statement: str, *parameters: object) -> list[Any]:
        with self._lock:
            return self._connection.execute(statement, parameters).fetchall()
