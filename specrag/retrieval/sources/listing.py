"""Lists folders and archives as entries, without reading the files. Depends on archives."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from specrag.retrieval.sources.archives.archive import (
    Archive,
    PackedFile,
    clean_name,
    is_archive,
)
from specrag.retrieval.sources.archives.opening import open_archive
from specrag.retrieval.sources.bounds import (
    MAX_ARCHIVE_RATIO,
    MAX_ARCHIVE_UNPACKED_BYTES,
    MIN_BOMB_BYTES,
    readable_size,
)
from specrag.retrieval.sources.files import kind_of
from specrag.retrieval.sources.ignore import IgnoreRules
from specrag.retrieval.sources.source import FileEntry, LoadFailure, Scan, UnreadableError


class _Folder(NamedTuple):
    """A folder to be listed; ``way`` are the real folders from the root to it."""

    path: Path
    name: str
    rules: IgnoreRules
    way: tuple[Path, ...]
    is_linked: bool = False


class Listing:
    """Gathers what a root holds.

    Args:
        matches: Tells whether a file is wanted by its name relative to the root.
        rules: Rules that hide files.
        use_ignore_files: Whether ignore files in the folders are applied.
    """

    def __init__(
        self, matches: Callable[[str], bool], rules: IgnoreRules, *, use_ignore_files: bool = True
    ) -> None:
        self._matches = matches
        self._rules = rules
        self._use_ignore_files = use_ignore_files
        self._entries: list[FileEntry] = []
        self._failures: list[LoadFailure] = []
        self._others: Counter[str] = Counter()
        self._num_ignored = 0
        # Folders entered through links; each is entered so once, which bounds the work.
        self._linked: set[Path] = set()

    def result(self) -> Scan:
        """Returns what was gathered."""
        entries = sorted(self._entries, key=_order)
        failures = sorted(self._failures, key=lambda failure: (failure.path, failure.reason))
        return Scan(tuple(entries), tuple(failures), dict(self._others), self._num_ignored)

    def add_folder(self, root: Path) -> None:
        """Lists a folder and those below it; hidden ones are passed over.

        A link to a folder is followed when it stays inside the root and does not lead back to a
        folder on the way to it.

        Args:
            root: The folder.
        """
        pending = [_Folder(root, "", self._rules, (root.resolve(),))]
        while pending:
            folder = pending.pop()
            rules = folder.rules
            if self._use_ignore_files:
                rules, failures = rules.within(folder.path, folder.name)
                self._failures.extend(failures)
            for child in self._children(folder.path):
                name = f"{folder.name}/{child.name}" if folder.name else child.name
                is_folder = _is_folder(child)
                if rules.hide(name, is_folder=is_folder):
                    self._num_ignored += 1
                elif not is_folder:
                    self.add_file(name, folder.path / child.name, folder.way[0])
                elif (real := self._entered(child, folder)) is not None:
                    is_linked = folder.is_linked or child.is_symlink()
                    way = (*folder.way, real)
                    pending.append(_Folder(folder.path / child.name, name, rules, way, is_linked))

    def add_file(self, name: str, path: Path, real_root: Path | None = None) -> None:
        """Lists a file if it is wanted; an archive with its members.

        Args:
            name: Relative to the root.
            path: Where it lies.
            real_root: The folder that a link must not lead out of; None when any may be read.
        """
        packed = is_archive(name)
        if not packed and not self._matches(name):
            self._others[PurePosixPath(name).suffix.lower()] += 1
            return
        try:
            found = self._checked(name, path, real_root)
            if packed:
                self._entries.extend(self._members(name, path, found))
            else:
                self._entries.append(FileEntry(name, path, found.st_size, found.st_mtime_ns))
        except UnreadableError as error:
            self._fail(path, error.reason)
        except OSError as error:
            self._fail(path, error.strerror or str(error))

    def _checked(self, name: str, path: Path, real_root: Path | None) -> os.stat_result:
        if path.is_symlink():
            if not path.exists():
                raise UnreadableError("is a link that leads nowhere")
            if real_root is not None and not path.resolve().is_relative_to(real_root):
                raise UnreadableError("is a link that leads out of the folder; not followed")
        if not is_encodable(name):
            raise UnreadableError(f"has a name that is not UTF-8: {ascii(name)}")
        found = path.stat()
        if kind := kind_of(found.st_mode):
            raise UnreadableError(f"is {kind}, not a file")
        return found

    def _children(self, folder: Path) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as found:
                return [entry for entry in found if not entry.name.startswith(".")]
        except OSError as error:
            self._fail(folder, error.strerror or str(error))
            return []

    def _entered(self, child: os.DirEntry[str], parent: _Folder) -> Path | None:
        """Returns where a folder really is, None when it must not be entered."""
        if not child.is_symlink():
            real = parent.way[-1] / child.name
            if parent.is_linked and real in self._linked:
                return None
        else:
            link = parent.path / child.name
            real = link.resolve()
            if reason := self._refusal(real, parent.way):
                self._fail(link, reason)
                return None
        if parent.is_linked or child.is_symlink():
            self._linked.add(real)
        return real

    def _refusal(self, real: Path, way: tuple[Path, ...]) -> str | None:
        if not real.is_relative_to(way[0]):
            return "is a link that leads out of the folder; not followed"
        if real in way:
            return "is a link that leads back to a folder it lies in; not followed"
        if real in self._linked:
            return "is a link to a folder that another link leads to; not followed"
        return None

    def _members(self, name: str, path: Path, found: os.stat_result) -> Iterator[FileEntry]:
        archive = open_archive(path)
        try:
            listed = list(self._wanted(archive, name, path))
            if archive.damage is not None:
                self._fail(path, archive.damage)
        finally:
            archive.close()
        total = sum(file.size for _, file in listed)
        _check_total(total, found.st_size)
        for below, file in listed:
            yield FileEntry(below, path, file.size, found.st_mtime_ns, file.member)

    def _wanted(self, archive: Archive, name: str, path: Path) -> Iterator[tuple[str, PackedFile]]:
        chosen: dict[str, PackedFile] = {}
        for file in archive.files():
            inner = clean_name(file.member.name)
            below = f"{name}/{inner}"
            place = path / inner
            if not inner or self._is_hidden(inner):
                continue
            if is_archive(inner):
                self._fail(place, "is an archive inside an archive; unpack it first")
            elif not self._matches(below):
                self._others[PurePosixPath(inner).suffix.lower()] += 1
            elif file.refusal is not None:
                self._fail(place, file.refusal)
            elif not is_encodable(below):
                self._fail(place, f"has a name that is not UTF-8: {ascii(inner)}")
            else:
                if chosen.pop(below, None) is not None:
                    self._fail(place, "stands in the archive twice; the later one was read")
                chosen[below] = file
        yield from chosen.items()

    def _is_hidden(self, inner: str) -> bool:
        parts = inner.split("/")
        if any(part.startswith(".") for part in parts):
            return True
        folders = ("/".join(parts[:count]) for count in range(1, len(parts)))
        hidden = any(self._rules.hide(folder, is_folder=True) for folder in folders)
        if hidden or self._rules.hide(inner, is_folder=False):
            self._num_ignored += 1
            return True
        return False

    def _fail(self, path: Path, reason: str) -> None:
        self._failures.append(LoadFailure(path, reason))


def _is_folder(child: os.DirEntry[str]) -> bool:
    try:
        return child.is_dir()
    except OSError:  # a link that leads round in a ring
        return False


def is_encodable(name: str) -> bool:
    """Tells whether a name is text, which a file system does not promise.

    Args:
        name: As the file system gives it.
    """
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _check_total(total: int, packed_size: int) -> None:
    if total > MAX_ARCHIVE_UNPACKED_BYTES:
        raise UnreadableError(
            f"unpacks to more than {readable_size(MAX_ARCHIVE_UNPACKED_BYTES)}; unpack it first"
        )
    if total > max(MIN_BOMB_BYTES, MAX_ARCHIVE_RATIO * packed_size):
        raise UnreadableError(
            f"unpacks to more than {MAX_ARCHIVE_RATIO} times its size; unpack it first"
        )


def _order(entry: FileEntry) -> tuple[str, int]:
    if entry.member is None:
        return entry.name, -1
    inner = clean_name(entry.member.name)
    return entry.name.removesuffix(f"/{inner}"), entry.member.position
