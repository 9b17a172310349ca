"""Vectors that were made already: those of a writer that was stopped before it could finish."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from specrag.errors import InputError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS origin (encoder TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS encodings (hash BLOB PRIMARY KEY, vector BLOB NOT NULL) WITHOUT ROWID;
"""
_MAX_PARAMETERS = 900


class EncodingJournal:
    """Keeps each vector as soon as it is made, so that a killed build goes on where it was.

    It is no part of an index: a journal that cannot be read, or one of another encoder, is begun
    anew, and it is deleted once its vectors are published.

    Args:
        path: The file; made if it does not exist.
        encoder: Fingerprint of the encoder.
        dimension: Length of a vector.

    Raises:
        InputError: The file cannot be written.
    """

    def __init__(self, path: Path, encoder: str, dimension: int) -> None:
        self._path = path
        self._dimension = dimension
        try:
            self._connection = self._open(encoder)
        except sqlite3.DatabaseError:
            self.delete(path)
            try:
                self._connection = self._open(encoder)
            except sqlite3.Error as error:
                raise InputError(f"cannot write to {str(path)!r}: {error}") from error

    def _open(self, encoder: str) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path)
        try:
            connection.executescript(f"PRAGMA synchronous=OFF; {_SCHEMA}")
            known = connection.execute("SELECT encoder FROM origin").fetchall()
            if known and known != [(encoder,)]:
                connection.executescript("DELETE FROM origin; DELETE FROM encodings;")
            if known != [(encoder,)]:
                with connection:
                    connection.execute("INSERT INTO origin VALUES (?)", (encoder,))
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def find(self, hashes: Sequence[bytes]) -> dict[bytes, npt.NDArray[np.float32]]:
        """Returns the vectors that are known.

        Args:
            hashes: Digests of texts.
        """
        found: dict[bytes, npt.NDArray[np.float32]] = {}
        for first in range(0, len(hashes), _MAX_PARAMETERS):
            part = list(hashes[first : first + _MAX_PARAMETERS])
            marks = ",".join("?" * len(part))
            statement = f"SELECT hash, vector FROM encodings WHERE hash IN ({marks})"
            try:
                rows = self._connection.execute(statement, part).fetchall()
            except sqlite3.DatabaseError:  # what was lost is made again
                return found
            for key, blob in rows:
                vector = np.frombuffer(blob, dtype=np.float32)
                if len(vector) == self._dimension:
                    found[key] = vector
        return found

    def keep(self, vectors: Mapping[bytes, npt.NDArray[np.float32]]) -> None:
        """Keeps vectors, all or none of them.

        Args:
            vectors: By digest of their texts.
        """
        with self._connection:
            self._connection.executemany(
                "INSERT OR REPLACE INTO encodings VALUES (?, ?)",
                ((key, vector.astype(np.float32).tobytes()) for key, vector in vectors.items()),
            )

    def close(self) -> None:
        """Closes the file, which stays for the next writer."""
        self._connection.close()

    @staticmethod
    def delete(path: Path) -> None:
        """Removes a journal.

        Args:
            path: The file, which may not exist.
        """
        for ending in ("", "-journal"):
            path.with_name(path.name + ending).unlink(missing_ok=True)
