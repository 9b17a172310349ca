"""What an index folder looks like on disk: file names, format version, manifest, pointer.

```
INDEX/CURRENT                one line: the generation in use and the SHA-256 of its manifest
INDEX/gen-000001/manifest.json, vectors.faiss, passages.sqlite
INDEX/.lock                  held by the one process that builds
INDEX/.building-*            a generation that is being built, or was when its builder died
INDEX/.CURRENT.new           the next pointer, for the moment before it replaces the old one
```
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from specrag.errors import IndexFormatError, suggest

FORMAT_VERSION = 2
CURRENT_NAME = "CURRENT"
NEXT_POINTER_NAME = ".CURRENT.new"
MANIFEST_NAME = "manifest.json"
VECTORS_NAME = "vectors.faiss"
PASSAGES_NAME = "passages.sqlite"
LOCK_NAME = ".lock"
BUILDING_PREFIX = ".building-"

_GENERATION = re.compile(r"gen-(\d{6,9})")
_POINTER = re.compile(r"(gen-\d{6,9}) ([0-9a-f]{64})\n")
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
class Manifest:
    """What a generation holds, how it was made and what its files must be.

    Attributes:
        format_version: Version of this layout.
        name: Name of the recipe.
        encoder: Name of the encoder.
        encoder_fingerprint: Fingerprint of the encoder.
        dimension: Length of the vectors.
        num_documents: Documents indexed.
        num_passages: Passages indexed.
        chunk_size: Most tokens in a passage.
        chunk_overlap: Most tokens shared by neighbouring passages.
        splitter_version: Version of the rules that cut documents.
        corpus_fingerprint: Digest of the ids and texts of all documents.
        created_at: When it was built, ISO 8601 in UTC.
        specrag_version: The version that built it.
        files: The files of the generation.
    """

    format_version: int
    name: str
    encoder: str
    encoder_fingerprint: str
    dimension: int
    num_documents: int
    num_passages: int
    chunk_size: int
    chunk_overlap: int
    splitter_version: int
    corpus_fingerprint: str
    created_at: str
    specrag_version: str
    files: Mapping[str, FileRecord]

    @property
    def index_version(self) -> str:
        """A short digest of the content; the time of building does not count."""
        content = self.to_dict()
        del content["created_at"]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
        return digest.hexdigest()[:_VERSION_LENGTH]

    def to_dict(self) -> dict[str, Any]:
        """Returns the manifest as plain data."""
        files = {name: record._asdict() for name, record in sorted(self.files.items())}
        return {**{field.name: getattr(self, field.name) for field in fields(self)}, "files": files}

    def to_json(self) -> bytes:
        """Returns the content of the manifest file."""
        return (json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n").encode()

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
        except ValueError as error:
            raise IndexFormatError(f"the index manifest is not valid JSON: {error}") from error
        _check_format_version(content)
        _check_keys(content)
        _check_types(content)
        return cls(**{**content, "files": _file_records(content["files"])})


class Pointer(NamedTuple):
    """What ``CURRENT`` says.

    Attributes:
        generation: Name of the folder in use.
        manifest_sha256: Digest of the manifest in it, so that a damaged manifest is noticed.
    """

    generation: str
    manifest_sha256: str

    def to_text(self) -> str:
        """Returns the content of the pointer file."""
        return f"{self.generation} {self.manifest_sha256}\n"

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


def generation_name(number: int) -> str:
    """Returns the folder name of a generation, such as ``gen-000001``."""
    return f"gen-{number:06d}"


def generation_number(name: str) -> int | None:
    """Returns the number in a folder name, None when it names no generation."""
    match = _GENERATION.fullmatch(name)
    return int(match[1]) if match else None


def file_record(path: Path) -> FileRecord:
    """Returns digest and length of a file as it is on disk."""
    digest = hashlib.sha256()
    size = 0
    with path.open("rb") as file:
        while part := file.read(_READ_BYTES):
            digest.update(part)
            size += len(part)
    return FileRecord(digest.hexdigest(), size)


def _check_format_version(content: Any) -> None:
    version = content.get("format_version") if isinstance(content, dict) else None
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise IndexFormatError(
            f"the index has format version {version!r}; this specrag reads {FORMAT_VERSION}"
        )


def _check_keys(content: dict[str, Any]) -> None:
    known = [field.name for field in fields(Manifest)]
    for key in content:
        if key not in known:
            raise IndexFormatError(f"unknown key {key!r} in the manifest; {suggest(key, known)}")
    missing = [key for key in known if key not in content]
    if missing:
        raise IndexFormatError(f"the index manifest lacks {', '.join(missing)}")


def _check_types(content: dict[str, Any]) -> None:
    kinds: dict[Any, type] = {"int": int, "str": str}
    for field in fields(Manifest):
        value, kind = content[field.name], kinds.get(field.type, dict)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise IndexFormatError(
                f"{field.name} in the index manifest must be of type {kind.__name__}, got {value!r}"
            )


def _file_records(content: dict[str, Any]) -> dict[str, FileRecord]:
    expected = {VECTORS_NAME, PASSAGES_NAME}
    if set(content) != expected:
        raise IndexFormatError(
            f"the index manifest must list the files {sorted(expected)}, got {sorted(content)}"
        )
    try:
        return {name: FileRecord(**record) for name, record in content.items()}
    except TypeError as error:
        raise IndexFormatError(f"damaged file list in the index manifest: {error}") from error
