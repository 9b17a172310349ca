"""What reading yields: entries, contents, failures. Depends on errors and the document module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from specrag.errors import InputError
from specrag.retrieval.document import Document, MetadataValue
from specrag.retrieval.structure import Syntax


class UnreadableError(InputError):
    """A file that cannot be used; the message says why in a few words, without naming the file."""

    @property
    def reason(self) -> str:
        """Why."""
        return self.message


@dataclass(frozen=True, slots=True)
class Member:
    """Where a file lies within an archive.

    Attributes:
        name: Its name as the archive has it.
        position: Its number in a zip directory, or the offset of its bytes in an unpacked tar.
    """

    name: str
    position: int


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file that can be read; told apart from its other versions by size and time.

    Attributes:
        name: POSIX path relative to the root; a member of an archive lies below the archive.
        path: The file on disk, which for a member is the archive.
        size: In bytes; unpacked for a member.
        mtime_ns: When the file on disk was last changed, in nanoseconds.
        member: Where it lies in an archive.
    """

    name: str
    path: Path
    size: int
    mtime_ns: int
    member: Member | None = None

    @property
    def source(self) -> str:
        """The path for people; within an archive it goes on below the archive's own."""
        return str(self.path / self.member.name.lstrip("/") if self.member else self.path)


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """A file that was asked for and could not be used.

    Attributes:
        path: The file; of a member, the archive's path and the member's name.
        reason: Why, in a few words.
    """

    path: Path
    reason: str

    def __str__(self) -> str:
        # A name may hold line ends and bytes that no terminal can show.
        name = str(self.path)
        return f"{name if name.isprintable() else ascii(name)}: {self.reason}"


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What came of loading a folder.

    Attributes:
        documents: The documents read, ordered by the names of their files.
        failures: The files that could not be used, ordered by path.
    """

    documents: tuple[Document, ...]
    failures: tuple[LoadFailure, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """What a root holds, told without reading the contents of its files.

    Attributes:
        entries: The files to read, ordered by name; the members of an archive stand together in
            the archive's own order, in which they are read fastest.
        failures: What matches and cannot be read, ordered by path.
        others: Number of visible files that match no pattern, by suffix.
        num_ignored: Number of files and folders that an ignore rule hides.
    """

    entries: tuple[FileEntry, ...]
    failures: tuple[LoadFailure, ...] = ()
    others: Mapping[str, int] = field(default_factory=dict)
    num_ignored: int = 0


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How files are read.

    Attributes:
        text_column: Of tables and JSON: makes a document of each row, with this column as its
            text and the others as metadata; None makes one document of the file.
        id_column: Of tables and JSON with a ``text_column``: names the documents; None counts.
        title_column: The same, for the titles.
        encoding: Of text files that are not UTF-8 and have no byte order mark; None guesses it
            where the guess is sure.
    """

    text_column: str | None = None
    id_column: str | None = None
    title_column: str | None = None
    encoding: str | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """What a format's reader makes of a file, or of one row of it.

    Attributes:
        text: The text.
        syntax: Its markup.
        title: Title, where the format names one.
        metadata: Facts that stand in the file.
        page_starts: Offsets at which pages start.
        key: Name of the row within the file; None for a whole file.
    """

    text: str
    syntax: Syntax
    title: str | None = None
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    page_starts: tuple[int, ...] = ()
    key: str | None = None


class Loaded(NamedTuple):
    """A file that was read.

    Attributes:
        content_hash: Digest of exactly the bytes that were parsed.
        documents: What it holds; empty when the digest is the one that was known already.
    """

    content_hash: str
    documents: tuple[Document, ...]
