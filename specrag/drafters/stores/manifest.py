"""DatastoreManifest: what a token datastore says of itself, read strictly."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from specrag.drafters.stores.arrays import DatastoreArrays
from specrag.errors import IndexFormatError, suggest

FORMAT_VERSION = 1
ARRAY_NAMES = tuple(field.name for field in fields(DatastoreArrays))

_DTYPES = ("<u2", "<u4", "<u8")
_DIGEST_KEY = "sha256"
_SHOWN_DIGITS = 12


class DatastoreOrigin(NamedTuple):
    """What a datastore was made from.

    Attributes:
        source: Name of what the texts were taken from, such as an index.
        source_version: Version of that.
        tokenizer: ``Tokenizer.vocabulary_fingerprint`` of the tokenizer that made the tokens.
        model: What the user called the model of that tokenizer.
        vocab_size: Number of different tokens.
    """

    source: str
    source_version: str
    tokenizer: str
    model: str
    vocab_size: int


class ArrayFile(NamedTuple):
    """What the file of an array must be.

    Attributes:
        file: Its name, which changes with its content.
        dtype: Type of the numbers in numpy's notation, little-endian.
        sha256: Hexadecimal digest of its content.
        size: Its length in bytes.
    """

    file: str
    dtype: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class DatastoreManifest:
    """What a datastore holds, what it was made from and how its files must look.

    Attributes:
        format_version: Version of the layout.
        source: As in ``DatastoreOrigin``.
        source_version: As in ``DatastoreOrigin``.
        tokenizer: As in ``DatastoreOrigin``.
        model: As in ``DatastoreOrigin``.
        vocab_size: As in ``DatastoreOrigin``.
        num_tokens: Tokens of all texts.
        num_texts: Number of texts.
        max_match: Tokens by which the positions are sorted.
        created_at: When it was built, ISO 8601 in UTC.
        files: The file of each array.
    """

    format_version: int
    source: str
    source_version: str
    tokenizer: str
    model: str
    vocab_size: int
    num_tokens: int
    num_texts: int
    max_match: int
    created_at: str
    files: Mapping[str, ArrayFile]

    @property
    def origin(self) -> DatastoreOrigin:
        """What it was made from."""
        return DatastoreOrigin(*(getattr(self, name) for name in DatastoreOrigin._fields))

    @property
    def num_bytes(self) -> int:
        """Length of all arrays."""
        return sum(record.size for record in self.files.values())

    def to_json(self) -> bytes:
        """Returns the content of the manifest file, which ends with a digest of itself."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        content["files"] = {name: record._asdict() for name, record in self.files.items()}
        content[_DIGEST_KEY] = _digest(content)
        return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes) -> DatastoreManifest:
        """Reads a manifest; every key must be known, present and of the right type.

        Args:
            data: The content of a manifest file.

        Raises:
            IndexFormatError: It is not a manifest, was altered or has another format version.
        """
        try:
            content = json.loads(data)
        except ValueError as error:
            raise IndexFormatError(f"the manifest is not valid JSON: {error}") from error
        version = content.get("format_version") if isinstance(content, dict) else None
        if version != FORMAT_VERSION or isinstance(version, bool):
            raise IndexFormatError(
                f"it has format version {version!r}; this specrag reads {FORMAT_VERSION}"
            )
        claimed = content.pop(_DIGEST_KEY, None)
        _check_fields(content)
        if claimed != _digest(content):
            raise IndexFormatError("the manifest was altered after it was written")
        return cls(**{**content, "files": _array_files(content["files"])})


def array_file_name(name: str, sha256: str) -> str:
    """Returns the name of an array's file.

    Args:
        name: The array's name.
        sha256: Hexadecimal digest of its content.
    """
    return f"{name}-{sha256[:_SHOWN_DIGITS]}.bin"


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _check_fields(content: dict[str, Any]) -> None:
    known = {field.name: str(field.type) for field in fields(DatastoreManifest)}
    for key in content:
        if key not in known:
            raise IndexFormatError(f"unknown key {key!r} in the manifest; {suggest(key, known)}")
    for name, kind in known.items():
        expected = {"int": int, "str": str}.get(kind, dict)
        value = content.get(name)
        if not isinstance(value, expected) or isinstance(value, bool):
            raise IndexFormatError(
                f"{name} in the manifest must be of type {expected.__name__}, got {value!r}"
            )


def _array_files(content: dict[str, Any]) -> dict[str, ArrayFile]:
    if set(content) != set(ARRAY_NAMES):
        raise IndexFormatError(
            f"the manifest must list the arrays {sorted(ARRAY_NAMES)}, got {sorted(content)}"
        )
    try:
        found = {name: ArrayFile(**content[name]) for name in ARRAY_NAMES}
    except TypeError as error:
        raise IndexFormatError(f"damaged file list in the manifest: {error}") from error
    for name, record in found.items():
        # A name that a manifest gives must not lead out of its folder.
        is_well_named = record.file == array_file_name(name, str(record.sha256))
        if not is_well_named or "/" in record.file or record.dtype not in _DTYPES:
            raise IndexFormatError(f"damaged record of {name!r} in the manifest: {record}")
    return found
