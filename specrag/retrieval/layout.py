"""What an index folder looks like on disk: file names, format version, manifest, pointer.

```
INDEX/CURRENT                       one line: the manifest in use and its SHA-256
INDEX/manifest-000007.json          names the segments in use and what their files must be
INDEX/segments/seg-000003/          one immutable segment: passages, terms, vectors
INDEX/segments/seg-000003/deleted-000007.npy    documents of the segment that are gone
INDEX/.lock                         held by the one process that writes
INDEX/.building-*                   a segment that is being written, or was when its writer died
INDEX/.encodings.sqlite             vectors made so far by a writer that has not finished
INDEX/.CURRENT.new                  the next pointer, for the moment before it replaces the old one
```
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from specrag.errors import IndexFormatError, suggest

FORMAT_VERSION = 3
CURRENT_NAME = "CURRENT"
NEXT_POINTER_NAME = ".CURRENT.new"
SEGMENTS_NAME = "segments"
PASSAGES_NAME = "passages.sqlite"
TERMS_NAME = "terms.sqlite"
VECTORS_NAME = "vectors.faiss"
ENCODINGS_NAME = ".encodings.sqlite"
LOCK_NAME = ".lock"
BUILDING_PREFIX = ".building-"

_MANIFEST = re.compile(r"manifest-(\d{6,9})\.json")
_SEGMENT = re.compile(r"seg-(\d{6,9})")
_DELETED = re.compile(r"deleted-\d{6,9}\.npy")
_POINTER = re.compile(r"(manifest-\d{6,9}\.json) ([0-9a-f]{64})\n")
_READ_BYTES = 1024 * 1024
_VERSION_LENGTH = 12


class FileRecord(NamedTuple):
    """What a file must be.

    Attributes:
        sha256: Hexadecimal digest of its content.
        size: Its length in bytes.
    """

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """A segment as a manifest names it.

    Attributes:
        name: Of its folder.
        num_documents: Documents in it, deleted ones included.
        num_passages: Passages in it, deleted ones included.
        num_deleted_documents: Documents that are gone.
        num_deleted_passages: Passages that are gone with them.
        deleted: Name of the file that lists them, empty when nothing is gone.
        files: Its files, the one of deletions included.
    """

    name: str
    num_documents: int
    num_passages: int
    num_deleted_documents: int
    num_deleted_passages: int
    deleted: str
    files: Mapping[str, FileRecord]

    @property
    def num_live_passages(self) -> int:
        """Passages that can be found."""
        return self.num_passages - self.num_deleted_passages


@dataclass(frozen=True, slots=True)
class IndexOrigin:
    """What decides how documents become passages and vectors; another origin means a new index.

    Attributes:
        encoder: Name of the encoder.
        encoder_fingerprint: Fingerprint of the encoder.
        dimension: Length of the vectors.
        chunk_size: Most tokens in a passage.
        chunk_overlap: Most tokens shared by neighbouring passages.
        splitter_version: Version of the rules that cut documents.
        reader_version: Version of the rules that turn files into documents.
        reading: How tables and JSON become documents, empty for the usual way.
        vectors: Which FAISS factory, as the recipe names it.
    """

    encoder: str
    encoder_fingerprint: str
    dimension: int
    chunk_size: int
    chunk_overlap: int
    splitter_version: int
    reader_version: int
    reading: str
    vectors: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an index holds, how it was made and what its files must be.

    Attributes:
        format_version: Version of this layout.
        name: Name of the index.
        origin: How documents became passages and vectors.
        num_documents: Documents that can be found.
        num_passages: Passages that can be found.
        next_passage: Id of the next passage; ids of deleted ones are not used again.
        corpus_fingerprint: Digest of all documents, in any order.
        scanned_at: When files were last looked at, nanoseconds since 1970; 0 for never.
        roots: Folders and files that were added beside the recipe's corpus.
        excluded: Ids of documents that were removed although their files are still there.
        created_at: When it was written, ISO 8601 in UTC.
        specrag_version: The version that wrote it.
        segments: The segments, oldest first.
    """

    format_version: int
    name: str
    origin: IndexOrigin
    num_documents: int
    num_passages: int
    next_passage: int
    corpus_fingerprint: str
    scanned_at: int
    roots: tuple[str, ...]
    excluded: tuple[str, ...]
    created_at: str
    specrag_version: str
    segments: tuple[SegmentRecord, ...]

    @property
    def index_version(self) -> str:
        """A short digest of what can be found, however many steps it took to come there."""
        made_from = [_plain(self.origin), self.name, self.corpus_fingerprint]
        digest = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode())
        return digest.hexdigest()[:_VERSION_LENGTH]

    def to_dict(self) -> dict[str, Any]:
        """Returns the manifest as plain data."""
        told: dict[str, Any] = _plain(self)
        return told

    def to_json(self) -> bytes:
        """Returns the content of the manifest file."""
        return (json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """Reads a manifest; every key must be known, present and of the right type.

        Args:
            data: The content of a manifest file.

        Raises:
            IndexFormatError: It is not a manifest, or one of another format version.
        """
        try:
            content = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise IndexFormatError(f"the index manifest is not valid JSON: {error}") from error
        _check_format_version(content)
        made: Manifest = _read(cls, content, "the index manifest")
        return made


class Pointer(NamedTuple):
    """What ``CURRENT`` says.

    Attributes:
        manifest: Name of the manifest in use.
        manifest_sha256: Its digest, so that a damaged manifest is noticed.
    """

    manifest: str
    manifest_sha256: str

    def to_text(self) -> str:
        """Returns the content of the pointer file."""
        return f"{self.manifest} {self.manifest_sha256}\n"

    @classmethod
    def from_text(cls, text: str) -> Pointer:
        """Reads the content of a pointer file.

        Args:
            text: The whole content.

        Raises:
            IndexFormatError: It is anything but what ``to_text`` makes.
        """
        match = _POINTER.fullmatch(text)
        if match is None:
            raise IndexFormatError(f"the pointer file {CURRENT_NAME} is damaged: {text[:100]!r}")
        return cls(match[1], match[2])


def manifest_name(number: int) -> str:
    """Returns the file name of a manifest, such as ``manifest-000001.json``."""
    return f"manifest-{number:06d}.json"


def manifest_number(name: str) -> int | None:
    """Returns the number in a file name, None when it names no manifest."""
    match = _MANIFEST.fullmatch(name)
    return int(match[1]) if match else None


def segment_name(number: int) -> str:
    """Returns the folder name of a segment, such as ``seg-000001``."""
    return f"seg-{number:06d}"


def segment_number(name: str) -> int | None:
    """Returns the number in a folder name, None when it names no segment."""
    match = _SEGMENT.fullmatch(name)
    return int(match[1]) if match else None


def deleted_name(number: int) -> str:
    """Returns the name of a file of deletions, such as ``deleted-000001.npy``."""
    return f"deleted-{number:06d}.npy"


def is_deleted_name(name: str) -> bool:
    """Tells whether a file name is one of a file of deletions."""
    return _DELETED.fullmatch(name) is not None


def file_record(path: Path) -> FileRecord:
    """Returns digest and length of a file as it is on disk."""
    digest = hashlib.sha256()
    size = 0
    with path.open("rb") as file:
        while part := file.read(_READ_BYTES):
            digest.update(part)
            size += len(part)
    return FileRecord(digest.hexdigest(), size)


def _plain(value: Any) -> Any:
    if isinstance(value, FileRecord):
        return value._asdict()
    if isinstance(value, Mapping):
        return {name: _plain(value[name]) for name in sorted(value)}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return value


def _check_format_version(content: Any) -> None:
    version = content.get("format_version") if isinstance(content, dict) else None
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise IndexFormatError(
            f"the index has format version {version!r}; this specrag reads {FORMAT_VERSION}"
        )


def _read(kind: Any, content: Any, what: str) -> Any:
    """Reads a dataclass of this module from plain data, strictly."""
    if not isinstance(content, dict):
        raise IndexFormatError(f"{what} must be an object, got {content!r}")
    known = {field.name: field.type for field in fields(kind)}
    for key in content:
        if key not in known:
            raise IndexFormatError(f"unknown key {key!r} in {what}; {suggest(key, list(known))}")
    missing = [key for key in known if key not in content]
    if missing:
        raise IndexFormatError(f"{what} lacks {', '.join(missing)}")
    return kind(**{key: _value(known[key], content[key], f"{key} in {what}") for key in known})


def _value(kind: Any, value: Any, what: str) -> Any:
    match kind:
        case "int" | "str":
            expected = int if kind == "int" else str
            if not isinstance(value, expected) or isinstance(value, bool):
                raise IndexFormatError(f"{what} must be of type {kind}, got {value!r}")
            return value
        case "IndexOrigin":
            return _read(IndexOrigin, value, what)
        case "tuple[str, ...]":
            return tuple(_value("str", each, what) for each in _listed(value, what))
        case "tuple[SegmentRecord, ...]":
            return tuple(_segment(each, what) for each in _listed(value, what))
        case _:
            return _file_records(value, what)


def _listed(value: Any, what: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise IndexFormatError(f"{what} must be a list, got {value!r}")
    return value


def _segment(content: Any, what: str) -> SegmentRecord:
    record: SegmentRecord = _read(SegmentRecord, content, f"a segment of {what}")
    if segment_number(record.name) is None:
        raise IndexFormatError(f"{record.name!r} in {what} names no segment")
    wanted = {PASSAGES_NAME, TERMS_NAME, VECTORS_NAME} | ({record.deleted} - {""})
    is_odd = record.deleted != "" and not is_deleted_name(record.deleted)
    if is_odd or not wanted <= record.files.keys():
        raise IndexFormatError(
            f"segment {record.name} must list the files {sorted(wanted)}, "
            f"got {sorted(record.files)}"
        )
    return record


def _file_records(content: Any, what: str) -> dict[str, FileRecord]:
    try:
        found = {str(name): FileRecord(**record) for name, record in content.items()}
    except (TypeError, AttributeError) as error:
        raise IndexFormatError(f"damaged file list, {what}: {error}") from error
    for name, record in found.items():
        if Path(name).name != name or not isinstance(record.size, int):
            raise IndexFormatError(f"damaged file list, {what}: {name!r}")
    return found
