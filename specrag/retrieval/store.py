"""Keeps documents and passages in one SQLite file; knows ids and texts, no vectors."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from specrag.errors import IndexFormatError, InputError
from specrag.retrieval.document import Document, Passage
from specrag.retrieval.fingerprints import (
    document_fingerprint,
    document_hash,
    metadata_text,
    read_metadata,
    text_hash,
)
from specrag.retrieval.indexed import DocumentInfo, IndexedFile

_SCHEMA = """
CREATE TABLE files (
    number INTEGER PRIMARY KEY,
    root TEXT NOT NULL,
    name TEXT NOT NULL,
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    hash TEXT NOT NULL,
    UNIQUE (root, name)
);
CREATE TABLE documents (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    text TEXT NOT NULL,
    source TEXT NOT NULL,
    title TEXT,
    metadata TEXT NOT NULL,
    syntax TEXT,
    page_starts TEXT NOT NULL,
    num_characters INTEGER NOT NULL,
    hash BLOB NOT NULL,
    fingerprint BLOB NOT NULL,
    file INTEGER REFERENCES files (number),
    first_passage INTEGER NOT NULL,
    num_passages INTEGER NOT NULL
);
CREATE TABLE passages (
    id INTEGER PRIMARY KEY,
    document INTEGER NOT NULL REFERENCES documents (number),
    text TEXT NOT NULL,
    start INTEGER NOT NULL,
    "end" INTEGER NOT NULL,
    page INTEGER,
    heading TEXT,
    line INTEGER,
    hash BLOB NOT NULL
);
CREATE INDEX passages_by_hash ON passages (hash);
CREATE INDEX documents_by_source ON documents (source);
CREATE INDEX documents_by_file ON documents (file);
"""
_INSERT_FILE = "INSERT INTO files VALUES (NULL, ?, ?, ?, ?, ?)"
_INSERT_DOCUMENT = "INSERT INTO documents VALUES (NULL{})".format(", ?" * 13)
_INSERT_PASSAGE = "INSERT INTO passages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_SELECT_PASSAGES = """
SELECT p.id, d.id, p.text, p.start, p."end", p.page, p.heading, p.line
FROM passages AS p JOIN documents AS d ON d.number = p.document
"""
_SELECT_DOCUMENTS = """
SELECT d.number, d.id, d.source, d.title, d.metadata, d.num_characters, d.hash, d.fingerprint,
    d.first_passage, d.num_passages
FROM documents AS d
"""
_SELECT_WHOLE = """
SELECT id, text, source, title, metadata, syntax, page_starts FROM documents WHERE id = ?
"""
# SQLite limits the parameters of one statement; older builds allow 999.
_MAX_PARAMETERS = 900


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
            # A store that is not finished is thrown away, so no journal is needed either.
            connection.executescript("PRAGMA synchronous=OFF; PRAGMA journal_mode=MEMORY")
            connection.executescript(_SCHEMA)
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
            store._rows("SELECT number FROM documents LIMIT 1")
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

    def put(
        self, document: Document, passages: Sequence[Passage], file: IndexedFile | None = None
    ) -> None:
        """Adds a document with its passages, all or nothing.

        Args:
            document: The document; its id must be new to the store.
            passages: Its passages, with consecutive ids that are new to the store.
            file: The file it was read from, if it was.

        Raises:
            InputError: An id is known already, a passage belongs to another document, or a text
                cannot be encoded as UTF-8.
        """
        strange = [passage for passage in passages if passage.document != document.id]
        if strange:
            raise InputError(
                f"passage {strange[0].id} belongs to {strange[0].document!r}, not {document.id!r}"
            )
        first = passages[0].id if passages else 0
        ids = [passage.id for passage in passages]
        assert ids == list(range(first, first + len(ids))), "ids of a document are consecutive"
        try:
            with self._lock, self._connection:
                self._insert(document, passages, first, file)
        except (sqlite3.IntegrityError, sqlite3.OperationalError, UnicodeEncodeError) as error:
            raise InputError(f"cannot store the document {document.id!r}: {error}") from error

    def get(self, ids: Sequence[int]) -> list[Passage]:
        """Returns passages in the order of their ids.

        Args:
            ids: Passage ids; may repeat.

        Raises:
            InputError: An id is not in the store.
        """
        found = self.find(ids)
        missing = [number for number in ids if number not in found]
        if missing:
            raise InputError(f"no passage has the id {missing[0]}")
        return [found[number] for number in ids]

    def find(self, ids: Sequence[int]) -> dict[int, Passage]:
        """Returns the passages that the store has of some ids, by id.

        Args:
            ids: Passage ids; may repeat.
        """
        statement = f"{_SELECT_PASSAGES} WHERE p.id IN ({{marks}})"
        rows = self._rows_with(statement, [int(number) for number in ids])
        return {row[0]: Passage(*row) for row in rows}

    def passages(self, first: int = 0, count: int = -1) -> Iterator[Passage]:
        """Yields passages in the order of their ids.

        Args:
            first: The least id.
            count: Most passages; all by default.
        """
        statement = f"{_SELECT_PASSAGES} WHERE p.id >= ? ORDER BY p.id LIMIT ?"
        block = 1000
        while count:
            size = block if count < 0 else min(block, count)
            rows = self._rows(statement, first, size)
            yield from (Passage(*row) for row in rows)
            if len(rows) < size:
                return
            first, count = rows[-1][0] + 1, count - (size if count > 0 else 0)

    def documents(self) -> list[DocumentInfo]:
        """Lists the documents in the order they were put."""
        return [_info(row) for row in self._rows(f"{_SELECT_DOCUMENTS} ORDER BY d.number")]

    def documents_called(self, names: Sequence[str]) -> list[DocumentInfo]:
        """Returns the documents with some ids, or read from some files.

        Args:
            names: Ids of documents or their sources.
        """
        by_id = self._rows_with(f"{_SELECT_DOCUMENTS} WHERE d.id IN ({{marks}})", names)
        by_source = self._rows_with(f"{_SELECT_DOCUMENTS} WHERE d.source IN ({{marks}})", names)
        return [_info(row) for row in sorted({row[0]: row for row in by_id + by_source}.values())]

    def document(self, key: str) -> Document:
        """Returns a whole document as it was put.

        Args:
            key: Its id.

        Raises:
            InputError: The store has no such document.
        """
        rows = self._rows(_SELECT_WHOLE, key)
        if not rows:
            raise InputError(f"no document has the id {key!r}")
        name, text, source, title, metadata, syntax, pages = rows[0]
        starts = tuple(json.loads(pages))
        return Document(name, text, source, title, read_metadata(metadata), syntax, starts)

    def document_text(self, key: str) -> str:
        """Returns the whole text of a document.

        Args:
            key: Its id.

        Raises:
            InputError: The store has no such document.
        """
        return self.document(key).text

    def files(self) -> list[tuple[IndexedFile, list[int]]]:
        """Lists the files that documents were read from, with the numbers of their documents."""
        rows = self._rows("SELECT number, root, name, size, mtime_ns, hash FROM files")
        owned: dict[int, list[int]] = {row[0]: [] for row in rows}
        for file, number in self._rows(
            "SELECT file, number FROM documents WHERE file IS NOT NULL ORDER BY number"
        ):
            owned[file].append(number)
        return [(IndexedFile(*row[1:]), owned[row[0]]) for row in rows]

    def count(self) -> int:
        """Returns the number of passages."""
        return int(self._rows("SELECT count(*) FROM passages")[0][0])

    def count_documents(self) -> int:
        """Returns the number of documents."""
        return int(self._rows("SELECT count(*) FROM documents")[0][0])

    def passage_ids(self, condition: str, parameters: Sequence[Any]) -> npt.NDArray[np.int64]:
        """Returns the ids of the passages of all documents that meet a condition, sorted.

        Args:
            condition: SQL over the table ``d`` of documents.
            parameters: Its values.
        """
        statement = f"SELECT d.first_passage, d.num_passages FROM documents AS d WHERE {condition}"
        rows = self._rows(statement, *parameters)
        ranges = [np.arange(first, first + count, dtype=np.int64) for first, count in rows]
        return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *ranges]))

    def passages_with_texts(self, hashes: Sequence[bytes]) -> dict[bytes, int]:
        """Returns a passage for each text that the store has.

        Args:
            hashes: Digests of texts, as ``text_hash`` gives them.

        Returns:
            The id of one passage with that text, by digest.
        """
        statement = "SELECT hash, max(id) FROM passages WHERE hash IN ({marks}) GROUP BY hash"
        return dict(self._rows_with(statement, hashes))

    def is_sound(self) -> str | None:
        """Has SQLite check the whole file; returns what is wrong, None when nothing is."""
        found = self._rows("PRAGMA integrity_check(1)")[0][0]
        return None if found == "ok" else str(found)

    def _insert(
        self, document: Document, passages: Sequence[Passage], first: int, file: IndexedFile | None
    ) -> None:
        d = document
        values = (
            *(d.id, d.text, d.source, d.title, metadata_text(d), d.syntax),
            *(json.dumps(d.page_starts), len(d.text), document_hash(d), document_fingerprint(d)),
            *(self._file(file), first, len(passages)),
        )
        number = self._connection.execute(_INSERT_DOCUMENT, values).lastrowid
        self._connection.executemany(
            _INSERT_PASSAGE,
            (
                (p.id, number, p.text, p.start, p.end, p.page, p.heading, p.line, text_hash(p.text))
                for p in passages
            ),
        )

    def _file(self, file: IndexedFile | None) -> int | None:
        if file is None:
            return None
        where = (file.root, file.name)
        found = self._connection.execute(
            "SELECT number FROM files WHERE root = ? AND name = ?", where
        ).fetchone()
        return found[0] if found else self._connection.execute(_INSERT_FILE, file).lastrowid

    def _rows(self, statement: str, *parameters: object) -> list[Any]:
        with self._lock:
            return self._connection.execute(statement, parameters).fetchall()

    def _rows_with(self, statement: str, values: Sequence[Any]) -> list[Any]:
        rows: list[Any] = []
        for first in range(0, len(values), _MAX_PARAMETERS):
            part = values[first : first + _MAX_PARAMETERS]
            rows += self._rows(statement.format(marks=",".join("?" * len(part))), *part)
        return rows


def _info(row: Sequence[Any]) -> DocumentInfo:
    number, key, source, title, metadata, *rest = row
    return DocumentInfo(number, key, source, title, read_metadata(metadata), *rest)
