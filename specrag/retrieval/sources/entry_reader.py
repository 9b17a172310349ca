"""Reads entries into documents, one file at a time. Depends on the formats and archives."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Self

from specrag.errors import MissingExtraError
from specrag.retrieval.document import Document, MetadataValue
from specrag.retrieval.sources.archives.archive import Archive
from specrag.retrieval.sources.archives.opening import open_archive
from specrag.retrieval.sources.files import read_steady, too_large
from specrag.retrieval.sources.formats.format import format_of, format_of_start
from specrag.retrieval.sources.source import (
    Content,
    FileEntry,
    Loaded,
    ReadOptions,
    UnreadableError,
)
from specrag.retrieval.structure import first_heading

_HASH_BYTES = 16
# Halves of surrogate pairs cannot be written as UTF-8, and NUL ends a text in C.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_UNTITLED = ("code", "plain", "rows")


class EntryReader:
    """Reads entries; keeps the last archive open, so that its members are read in one go.

    Args:
        options: How files are read.
    """

    def __init__(self, options: ReadOptions | None = None) -> None:
        self._options = options or ReadOptions()
        self._archive: Archive | None = None
        self._archive_key: tuple[Path, int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the archive that is open."""
        if self._archive is not None:
            self._archive.close()
        self._archive = self._archive_key = None

    def load(self, entry: FileEntry, known_hash: str | None = None) -> Loaded:
        """Reads a file once, for its digest and its documents.

        Args:
            entry: The file.
            known_hash: Digest of a version whose documents are at hand.

        Returns:
            The digest of exactly the bytes that were parsed, and the documents; none of them
            when the digest is the known one.

        Raises:
            UnreadableError: The file cannot be used; says why.
        """
        try:
            data = self._bytes_of(entry)
        except OSError as error:
            raise UnreadableError(error.strerror or str(error)) from error
        digest = hashlib.blake2b(data, digest_size=_HASH_BYTES).hexdigest()
        if digest == known_hash:
            return Loaded(digest, ())
        return Loaded(digest, documents_of(data, entry.name, entry.source, self._options))

    def _bytes_of(self, entry: FileEntry) -> bytes:
        max_bytes = format_of(entry.name).max_bytes
        if entry.member is None:
            return read_steady(entry.path, max_bytes)[0]
        if entry.size > max_bytes:
            raise too_large(max_bytes)
        data = self._opened(entry).read(entry.member, entry.size)
        self._check_unchanged(entry)
        return data

    def _opened(self, entry: FileEntry) -> Archive:
        key = entry.path, entry.mtime_ns
        if self._archive is None or self._archive_key != key:
            self.close()
            self._check_unchanged(entry)
            self._archive, self._archive_key = open_archive(entry.path), key
        return self._archive

    def _check_unchanged(self, entry: FileEntry) -> None:
        # Places within an archive hold for the version that was listed.
        if os.stat(entry.path).st_mtime_ns != entry.mtime_ns:  # noqa: PTH116 - as files does
            raise UnreadableError("lies in an archive that changed meanwhile; run again")


def documents_of(data: bytes, name: str, source: str, options: ReadOptions) -> tuple[Document, ...]:
    """Makes documents of a file's bytes.

    Args:
        data: The file.
        name: Names the documents; its suffix tells the format.
        source: Where it came from, for people.
        options: How to read it.

    Raises:
        UnreadableError: It cannot be used; says why.
    """
    suffix = PurePosixPath(name).suffix.lower()
    known = format_of(name) if suffix else format_of_start(data)
    if len(data) > known.max_bytes:
        raise too_large(known.max_bytes)
    try:
        contents = known.read(data, name, options)
    except MissingExtraError as error:
        raise UnreadableError(f"cannot be read yet; {error.hint}") from error
    documents = tuple(_documents(contents, name, source, suffix))
    if not documents:
        raise UnreadableError("holds no text")
    return documents


def _documents(
    contents: Iterable[Content], name: str, source: str, suffix: str
) -> Iterable[Document]:
    for content in contents:
        text = _storable(content.text)
        if text.strip():
            title = content.title
            if title is None and content.syntax not in _UNTITLED:
                title = first_heading(text, content.syntax)
            yield Document(
                id=name if content.key is None else f"{name}#{_storable(content.key)}",
                text=text,
                source=source,
                title=_storable(title) if title else None,
                metadata={**_storable_facts(content.metadata), "suffix": suffix},
                syntax=content.syntax,
                page_starts=content.page_starts,
            )


def _storable(text: str) -> str:
    return _UNSTORABLE.sub("\ufffd", text)  # keeps the length, so offsets hold


def _storable_facts(metadata: Mapping[str, MetadataValue]) -> dict[str, MetadataValue]:
    return {_storable(key): _storable_value(value) for key, value in metadata.items()}


def _storable_value(value: MetadataValue) -> MetadataValue:
    if isinstance(value, str):
        return _storable(value)
    return tuple(map(_storable, value)) if isinstance(value, tuple) else value
