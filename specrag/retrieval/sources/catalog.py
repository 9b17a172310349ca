"""The entry points: files, folders, archives and streams become documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from specrag.errors import InputError
from specrag.retrieval.document import Document
from specrag.retrieval.sources.bounds import MAX_RICH_FILE_BYTES
from specrag.retrieval.sources.entry_reader import EntryReader, documents_of
from specrag.retrieval.sources.files import too_large
from specrag.retrieval.sources.formats.format import KNOWN_NAMES, SUFFIXES, UNREADABLE_SUFFIXES
from specrag.retrieval.sources.ignore import IgnoreRules
from specrag.retrieval.sources.listing import Listing
from specrag.retrieval.sources.patterns import matcher
from specrag.retrieval.sources.source import (
    FileEntry,
    Loaded,
    LoadFailure,
    LoadReport,
    ReadOptions,
    Scan,
    UnreadableError,
)

# Raised whenever the same bytes would give other documents, so that old indexes are rebuilt.
READER_VERSION = 1
DEFAULT_PATTERNS = (
    *(f"*{suffix}" for suffix in (*SUFFIXES, *UNREADABLE_SUFFIXES)),
    *KNOWN_NAMES,
)
"""Every kind of file that can be read, and kinds of documents that are reported as failures."""


def scan(
    root: Path,
    patterns: Sequence[str] | None = None,
    *,
    ignore: Sequence[str] = (),
    use_ignore_files: bool = True,
) -> Scan:
    """Lists the files of a folder or an archive that match any pattern, without reading them.

    Passed over are hidden files and folders, those that a ``.gitignore`` or ``.specragignore``
    below the root names, and usual folders of programs such as ``node_modules``. Archives in a
    folder are listed with their members, an archive inside an archive is not.

    Args:
        root: A folder, an archive, or a single file, which is listed whatever the patterns are.
        patterns: Globs over the path relative to the root; ``**`` spans folders. A pattern without
            a slash is matched against the file name, in any folder. Capital and small letters are
            not told apart. None takes every kind of file that can be read.
        ignore: Further rules that hide files, written as in ``.gitignore``.
        use_ignore_files: Whether the ignore files below the root are applied.

    Raises:
        InputError: The root does not exist.
        ConfigError: An ignore rule cannot be read.
    """
    matches = matcher(DEFAULT_PATTERNS if patterns is None else patterns)
    if root.is_dir():
        listing = Listing(matches, IgnoreRules.of(ignore), use_ignore_files=use_ignore_files)
        listing.add_folder(root)
        return listing.result()
    if not root.exists():
        raise InputError(
            f"no such file or folder: {str(root)!r}", hint="give a folder of documents that exists"
        )
    whole = lambda name: name == root.name or matches(name)  # noqa: E731
    listing = Listing(whole, IgnoreRules.of(ignore), use_ignore_files=use_ignore_files)
    listing.add_file(root.name, root)
    return listing.result()


def load_entry(entry: FileEntry, options: ReadOptions | None = None) -> Loaded:
    """Reads one file; many in a row are read faster by one ``EntryReader``.

    Args:
        entry: The file.
        options: How to read it.

    Returns:
        The digest of exactly the bytes that were parsed, and the documents.

    Raises:
        UnreadableError: The file cannot be used; says why.
    """
    with EntryReader(options) as reader:
        return reader.load(entry)


def load_folder(
    root: Path,
    patterns: Sequence[str] | None = None,
    options: ReadOptions | None = None,
) -> LoadReport:
    """Reads all documents of a folder, an archive or a file into memory.

    Args:
        root: As for ``scan``.
        patterns: As for ``scan``.
        options: How to read the files.

    Returns:
        The documents and the failures, in an order that depends on the names alone.

    Raises:
        InputError: The root does not exist, or no file below it matches.
    """
    found = scan(root, patterns)
    if not found.entries and not found.failures:
        raise InputError(
            nothing_found(root, patterns, found), hint="check the folder and the patterns"
        )
    documents: dict[str, tuple[Document, ...]] = {}
    failures = list(found.failures)
    with EntryReader(options) as reader:
        for entry in found.entries:
            try:
                documents[entry.name] = reader.load(entry).documents
            except UnreadableError as error:
                failures.append(LoadFailure(Path(entry.source), error.reason))
    return LoadReport(
        tuple(document for name in sorted(documents) for document in documents[name]),
        tuple(sorted(failures, key=lambda failure: (failure.path, failure.reason))),
    )


def read_stdin(
    stream: BinaryIO, name: str = "stdin", options: ReadOptions | None = None
) -> tuple[Document, ...]:
    """Reads the documents of a stream, such as standard input.

    Args:
        stream: Gives bytes.
        name: Of the document; its suffix tells the format, else the first bytes do.
        options: How to read it.

    Raises:
        UnreadableError: It cannot be used; says why.
    """
    data = stream.read(MAX_RICH_FILE_BYTES + 1)
    if len(data) > MAX_RICH_FILE_BYTES:
        raise too_large(MAX_RICH_FILE_BYTES)
    return documents_of(data, name, name, options or ReadOptions())


def nothing_found(root: Path, patterns: Sequence[str] | None, found: Scan) -> str:
    """Returns a sentence that says that a root has no file to read, and what it has instead.

    Args:
        root: What was scanned.
        patterns: The globs.
        found: What the scan gave.
    """
    wanted = (
        "of a kind that can be read"
        if patterns is None or tuple(patterns) == DEFAULT_PATTERNS
        else (f"that matches any of: {', '.join(patterns) or '(no pattern)'}")
    )
    most = sorted(found.others.items(), key=lambda pair: (-pair[1], pair[0]))[:3]
    others = ", ".join(f"{count} {suffix or 'without suffix'}" for suffix, count in most)
    there = f"; there are others: {others}" if others else ""
    return f"no file in {str(root)!r} {wanted}{there}"
