"""Brings an index up to date with files: only what changed is read and encoded again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from tqdm import tqdm

from specrag.errors import InputError
from specrag.retrieval.document import Document
from specrag.retrieval.indexed import DocumentInfo, IndexedFile
from specrag.retrieval.sources.catalog import nothing_found, read_stdin, scan
from specrag.retrieval.sources.entry_reader import EntryReader
from specrag.retrieval.sources.source import FileEntry, LoadFailure, ReadOptions
from specrag.retrieval.writer import IndexWriter

# A file changed within the resolution of its time stamp looks as it did before (git's "racy" case).
_RACY_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Root:
    """Where files are looked for.

    Attributes:
        key: What the index calls it; empty for the corpus of the recipe.
        path: A folder, an archive or one file.
        patterns: Globs that choose files; None for every kind that can be read.
        prefix: Put before the names of files, to make the ids of documents.
        ignore: Patterns of what is passed over, as in an ignore file.
        options: How its files are read.
    """

    key: str
    path: Path
    patterns: tuple[str, ...] | None = None
    prefix: str = ""
    ignore: tuple[str, ...] = ()
    options: ReadOptions = field(default_factory=ReadOptions)


@dataclass(slots=True)
class SyncReport:
    """What a sync did; ids of documents.

    Attributes:
        added: New ones.
        updated: Ones whose content changed.
        removed: Ones whose files are gone.
        num_unchanged: Documents that are as they were.
        num_read: Files whose bytes were read.
        passed_over: How many visible files match no pattern, by suffix.
        failures: Files that could not be used. Documents of such a file stay as they were.
    """

    added: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    num_unchanged: int = 0
    num_read: int = 0
    passed_over: dict[str, int] = field(default_factory=dict)
    failures: list[LoadFailure] = field(default_factory=list)

    @property
    def has_changed(self) -> bool:
        """Whether any document changed."""
        return bool(self.added or self.updated or self.removed)


def sync(
    writer: IndexWriter, roots: Sequence[Root], *, strict: bool = False, progress: bool = False
) -> SyncReport:
    """Puts and removes documents until the index is as the files are; commits nothing.

    A file is read when its length or time stamp differ, and its documents are put when its bytes
    differ too. Documents that were put from no file stay.

    Args:
        writer: Of the index.
        roots: Where all its files are looked for.
        strict: Whether the first file that cannot be used is an error.
        progress: Whether to show a progress bar on standard error.

    Raises:
        InputError: A root does not exist, or a file cannot be used and ``strict`` is set; nothing
            has been changed then, as long as nothing is committed.
    """
    return _Sync(writer, strict).run(roots, progress)


def added_root(path: Path) -> Root:
    """Returns the root of a file or folder that a user adds beside the recipe's corpus.

    The ids of a folder's documents begin with the name of the folder.

    Args:
        path: Of a folder, an archive or one file.
    """
    place = path.expanduser().resolve()
    return Root(str(place), place, None, f"{place.name}/" if place.is_dir() else "")


def add_roots(
    writer: IndexWriter, paths: Sequence[Path], *, strict: bool = False, progress: bool = False
) -> SyncReport:
    """Puts the documents of files and folders, which every later sync follows too.

    Args:
        writer: Of the index.
        paths: Files, folders or archives.
        strict: Whether the first file that cannot be used is an error.
        progress: Whether to show a progress bar on standard error.

    Raises:
        InputError: A path does not exist; nothing is added then.
    """
    missing = [path for path in paths if not path.expanduser().exists()]
    if missing:
        raise InputError(f"there is no file or folder {str(missing[0])!r}")
    roots = {root.key: root for root in map(added_root, paths)}
    # What was removed once and is added by name is wanted again.
    writer.excluded -= {
        root.prefix + entry.name
        for root in roots.values()
        for entry in scan(root.path, root.patterns).entries
    }
    report = sync(writer, list(roots.values()), strict=strict, progress=progress)
    writer.roots = tuple(dict.fromkeys([*writer.roots, *roots]))
    return report


def add_document(writer: IndexWriter, stream: BinaryIO, key: str, report: SyncReport) -> None:
    """Puts one document that is read from a stream.

    Args:
        writer: Of the index.
        stream: Its bytes.
        key: Id of the document.
        report: Is told what changed.

    Raises:
        InputError: It is no text, or holds none.
    """
    document = read_stdin(stream, key)[0]
    is_known = writer.find_id(key) is not None
    writer.excluded -= {key}
    if writer.put(document):
        (report.updated if is_known else report.added).append(key)
    else:
        report.num_unchanged += 1


def carry_over(writer: IndexWriter, roots: Sequence[Root], report: SyncReport) -> None:
    """Puts what an index that is begun anew cannot read again: it has no other way to get it.

    That are documents that came from no file, and those of files that cannot be read today.

    Args:
        writer: Of the index; nothing is done where it goes on with what is there.
        roots: Where all its files were looked for.
        report: Of that sync.
    """
    if writer.base is not None or writer.previous is None:
        return
    blocked = [failure.path for failure in report.failures]
    paths = {root.key: root.path for root in roots}
    for segment in writer.previous.segments:
        files = {number: file for file, owned in segment.store.files() for number in owned}
        for info in segment.documents():
            file = files.get(info.number)
            is_gone = file is not None and not (
                file.root in paths and _is_below(paths[file.root] / file.name, blocked)
            )
            if not (is_gone or writer.has_new(info.id) or info.id in writer.excluded):
                writer.put(segment.store.document(info.id), file)


def remove_named(writer: IndexWriter, names: Sequence[str]) -> list[str]:
    """Removes documents by id or path, and all of an added folder by its path.

    Documents whose files stay where they are will be passed over by every later sync.

    Args:
        writer: Of the index.
        names: Ids of documents, paths of files, or paths that were added.

    Returns:
        The ids of the documents that are gone now.

    Raises:
        InputError: A name is not known; nothing is removed then.
    """
    roots = {name: str(Path(name).expanduser().resolve()) for name in names}
    added = {root for root in roots.values() if root in writer.roots}
    single = [name for name, root in roots.items() if root not in added]
    below = [
        info.id
        for (key, _), known in _known_files(writer).items()
        if key in added
        for info in known.documents
    ]
    gone = writer.remove(*single) if single else []
    writer.excluded |= frozenset(gone)
    gone += writer.remove(*(key for key in below if key not in gone)) if below else []
    writer.roots = tuple(root for root in writer.roots if root not in added)
    return gone


class _Known:
    """A file that the index knows, with its documents."""

    def __init__(self, file: IndexedFile, documents: list[DocumentInfo]) -> None:
        self.file = file
        self.documents = documents


class _Sync:
    """One run; ``_unseen`` are the known files that have not been found yet."""

    def __init__(self, writer: IndexWriter, strict: bool) -> None:
        self._writer = writer
        self._strict = strict
        self._report = SyncReport()
        self._unseen = _known_files(writer)
        self._known_as = {
            info.id: place for place, known in self._unseen.items() for info in known.documents
        }
        self._owners: dict[str, str] = {}
        self._scanned_at = writer.scanned_at

    def run(self, roots: Sequence[Root], progress: bool) -> SyncReport:
        started = time.time_ns()
        entries = [(root, entry) for root in roots for entry in self._entries(root)]
        with ExitStack() as stack:
            readers = [stack.enter_context(EntryReader(root.options)) for root in roots]
            reader_of = {root.key: reader for root, reader in zip(roots, readers, strict=True)}
            for root, entry in tqdm(entries, "reading", disable=not progress):
                self._visit(root, entry, reader_of[root.key])
        # Files below a folder that could not be read are not gone, nor is what was not looked for.
        blocked = [failure.path for failure in self._report.failures]
        paths = {root.key: root.path for root in roots}
        for (key, name), known in self._unseen.items():
            if key in paths and not _is_below(paths[key] / name, blocked):
                self._remove(known.documents)
        if not any(paths[key] in blocked for key in paths):
            self._writer.scanned_at = started
        return self._report

    def _entries(self, root: Root) -> Sequence[FileEntry]:
        try:
            found = scan(root.path, root.patterns, ignore=root.ignore)
        except InputError as error:
            if not root.key:
                raise
            # A disk that is not there today may be there tomorrow.
            self._fail(LoadFailure(root.path, error.message))
            return ()
        for failure in found.failures:
            self._fail(failure)
        for suffix, count in found.others.items():
            others = self._report.passed_over
            others[suffix] = others.get(suffix, 0) + count
        if not (root.key or found.entries or found.failures):
            raise InputError(
                nothing_found(root.path, root.patterns, found),
                hint="put documents there or change the patterns",
            )
        return found.entries

    def _visit(self, root: Root, entry: FileEntry, reader: EntryReader) -> None:
        known = self._unseen.pop((root.key, entry.name), None)
        if known is not None and self._looks_unchanged(entry, known.file):
            self._keep(known)
            return
        try:
            digest, documents = reader.load(entry, known.file.hash if known else None)
        except InputError as error:  # unreadable, or a row that makes no document
            self._fail(LoadFailure(Path(entry.source), error.message))
            return
        self._report.num_read += 1
        if known is not None and digest == known.file.hash:
            self._keep(known)
            return
        file = IndexedFile(root.key, entry.name, entry.size, entry.mtime_ns, digest)
        kept = set()
        for document in documents:
            kept.add(self._put(_prefixed(document, root.prefix), file, Path(entry.source)))
        if known is not None:
            self._remove([old for old in known.documents if old.id not in kept])

    def _keep(self, known: _Known) -> None:
        self._report.num_unchanged += len(known.documents)
        self._owners |= dict.fromkeys((info.id for info in known.documents), known.file.name)

    def _looks_unchanged(self, entry: FileEntry, file: IndexedFile) -> bool:
        same = (entry.size, entry.mtime_ns) == (file.size, file.mtime_ns)
        return same and entry.mtime_ns < self._scanned_at - _RACY_NS

    def _put(self, document: Document, file: IndexedFile, path: Path) -> str:
        if document.id in self._writer.excluded:
            return document.id
        old = self._writer.find_id(document.id)
        try:
            self._check_owner(document.id)
            is_new = self._writer.put(document, file)
        except InputError as error:
            self._fail(LoadFailure(path, error.message))
            return document.id
        self._owners[document.id] = file.name
        if not is_new:
            self._report.num_unchanged += 1
        else:
            (self._report.added if old is None else self._report.updated).append(document.id)
        return document.id

    def _check_owner(self, key: str) -> None:
        # A document of another file that is still there must not be replaced by chance.
        owner = self._owners.get(key)
        place = self._known_as.get(key)
        if owner is None and place is not None and place in self._unseen:
            owner = self._unseen[place].file.name
        if owner is not None:
            raise InputError(f"the id {key!r} is taken by {owner!r}")

    def _remove(self, documents: Sequence[DocumentInfo]) -> None:
        gone = [info.id for info in documents if self._writer.find_id(info.id) == info]
        if gone:
            self._report.removed += self._writer.remove(*gone)

    def _fail(self, failure: LoadFailure) -> None:
        if self._strict:
            raise InputError(str(failure), hint="leave the file out, or drop --strict")
        self._report.failures.append(failure)


def _prefixed(document: Document, prefix: str) -> Document:
    return replace(document, id=prefix + document.id) if prefix else document


def _known_files(writer: IndexWriter) -> dict[tuple[str, str], _Known]:
    """Returns the files that the index knows, by root and name."""
    known: dict[tuple[str, str], _Known] = {}
    for segment in writer.base.segments if writer.base else ():
        live = {info.number: info for info in segment.documents()}
        for file, numbers in segment.store.files():
            documents = [live[number] for number in numbers if number in live]
            if documents:
                known[file.root, file.name] = _Known(file, documents)
    return known


def _is_below(path: Path, folders: Sequence[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)
