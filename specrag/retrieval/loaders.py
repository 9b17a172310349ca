"""Reads files and folders into documents. What cannot be read is reported, never skipped silently.

Depends on the document and structure modules.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from specrag.errors import InputError
from specrag.retrieval.document import Document
from specrag.retrieval.structure import first_heading, syntax_of

MAX_FILE_BYTES = 32 * 1024 * 1024
DEFAULT_PATTERNS = ("*.md", "*.markdown", "*.rst", "*.txt")

_GLOB_PARTS = re.compile(r"\*\*/|\*\*|\*|\?|[^*?]+")
_GLOB_TO_REGEX = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """A file that was asked for and could not be used.

    Attributes:
        path: The file.
        reason: Why, in a few words.
    """

    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What came of loading a folder.

    Attributes:
        documents: The documents read, ordered by id.
        failures: The files that could not be used, ordered by path.
    """

    documents: tuple[Document, ...]
    failures: tuple[LoadFailure, ...]


class _UnreadableError(Exception):
    """Carries the reason why a file cannot be used to the place that reports it."""


def load_folder(root: Path, patterns: Sequence[str] = DEFAULT_PATTERNS) -> LoadReport:
    """Reads the files of a folder that match any pattern.

    Hidden files and folders are passed over; links to folders are not followed.

    Args:
        root: A folder, or a single file, which is read whatever the patterns are.
        patterns: Globs over the path relative to the root; ``**`` spans folders. A pattern
            without a slash is matched against the file name, in any folder.

    Returns:
        The documents and the failures, in an order that depends on the names alone.

    Raises:
        InputError: The root does not exist, or no file below it matches.
    """
    if root.is_file():
        return _report([(root.name, root)])
    if not root.is_dir():
        raise InputError(
            f"no such file or folder: {str(root)!r}", hint="give a folder of text files that exists"
        )
    matches = _matcher(patterns)
    files, failures = _walk(root)
    found = [(name, path) for name, path in sorted(files) if matches(name)]
    if not found:
        raise InputError(
            f"no file in {str(root)!r} matches any of: {', '.join(patterns) or '(no pattern)'}",
            hint=f"put text files there ({', '.join(sorted(_READERS))}) or change the patterns",
        )
    return _report(found, failures)


def _report(
    found: Sequence[tuple[str, Path]], earlier_failures: Sequence[LoadFailure] = ()
) -> LoadReport:
    documents: list[Document] = []
    failures = list(earlier_failures)
    for name, path in found:
        try:
            documents.append(_load_file(name, path))
        except _UnreadableError as error:
            failures.append(LoadFailure(path, str(error)))
        except OSError as error:
            failures.append(LoadFailure(path, error.strerror or str(error)))
    return LoadReport(tuple(documents), tuple(sorted(failures, key=lambda failure: failure.path)))


def _load_file(name: str, path: Path) -> Document:
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        allowed = ", ".join(sorted(_READERS))
        raise _UnreadableError(f"unknown file type {path.suffix!r}; allowed: {allowed}")
    if not _is_encodable(name):
        raise _UnreadableError(f"has a name that is not UTF-8: {name!r}")
    text = reader(path)
    if not text.strip():
        raise _UnreadableError("holds no text")
    return Document(name, text, str(path), title=first_heading(text, syntax_of(name)))


def _read_text(path: Path) -> str:
    if not path.is_file():  # opening a pipe would wait for ever
        raise _UnreadableError("is not a regular file (a broken link, pipe or device)")
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise _UnreadableError(f"is larger than {MAX_FILE_BYTES} bytes")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _UnreadableError("is UTF-16 text; save it as UTF-8")
    if b"\0" in data:
        raise _UnreadableError("is binary, not text")
    try:
        # Bytes are decoded without newline translation: offsets count every character.
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _UnreadableError(f"is not UTF-8 text (byte {error.start})") from error


# Formats are added here: a suffix and the function that turns a file into its text.
_READERS: dict[str, Callable[[Path], str]] = {
    ".markdown": _read_text,
    ".md": _read_text,
    ".rst": _read_text,
    ".txt": _read_text,
}


def _is_encodable(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _walk(root: Path) -> tuple[list[tuple[str, Path]], list[LoadFailure]]:
    """Returns the relative POSIX path and the path of each file, and what was not entered."""
    errors: list[OSError] = []
    files: list[tuple[str, Path]] = []
    failures: list[LoadFailure] = []
    for folder, subfolders, names in os.walk(root, onerror=errors.append, followlinks=False):
        here = Path(folder)
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        visible = [here / name for name in names if not name.startswith(".")]
        files.extend((path.relative_to(root).as_posix(), path) for path in visible)
        links = [here / name for name in subfolders if (here / name).is_symlink()]
        failures.extend(LoadFailure(link, "is a link to a folder; not followed") for link in links)
    for error in errors:
        failures.append(LoadFailure(Path(str(error.filename)), error.strerror or str(error)))
    return files, failures


def _matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
    spanning = (pattern if "/" in pattern else f"**/{pattern}" for pattern in patterns)
    joined = "|".join(_glob_to_regex(pattern) for pattern in spanning)
    return lambda name: bool(patterns) and re.fullmatch(joined, name, re.DOTALL) is not None


def _glob_to_regex(pattern: str) -> str:
    parts = _GLOB_PARTS.findall(pattern)
    return "".join(_GLOB_TO_REGEX.get(part) or re.escape(part) for part in parts)
