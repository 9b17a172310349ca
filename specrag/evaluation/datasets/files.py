"""Reading the files of evaluation sets: packed or not, as JSON, JSON lines or tables."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specrag.errors import InputError

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RawFile:
    """One file, read and unpacked.

    Attributes:
        path: Where it lies.
        text: What it says.
        sha256: Of its bytes as they lie on disk.
    """

    path: Path
    text: str
    sha256: str

    @property
    def stem(self) -> str:
        """Its name without the ends that say how it is packed and written."""
        name = self.path.name
        for ending in (".gz", ".xz", ".jsonl", ".json", ".csv", ".tsv", ".txt"):
            name = name.removesuffix(ending)
        return name


def read_file(path: Path) -> RawFile:
    """Reads a file; what gzip or xz packed is unpacked.

    Args:
        path: The file.

    Raises:
        InputError: It cannot be read, is damaged, is not UTF-8, or holds nothing.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot read the evaluation set {str(path)!r}: {error.strerror}",
            hint="give a file or folder that exists, or hub:NAME",
        ) from error
    try:
        text = _unpacked(data).decode("utf-8-sig")
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise InputError(f"{str(path)!r} is a damaged archive: {error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{str(path)!r} is not UTF-8 text (byte {error.start})") from error
    if not text.strip():
        raise InputError(f"{str(path)!r} is empty")
    return RawFile(path, text, hashlib.sha256(data).hexdigest())


def json_of(file: RawFile) -> Any:
    """Returns the content of a JSON file.

    Args:
        file: It holds one JSON value.

    Raises:
        InputError: It does not.
    """
    try:
        return json.loads(file.text)
    except ValueError as error:
        raise InputError(f"{str(file.path)!r} is not JSON: {error}") from error


def rows_of(file: RawFile) -> list[Row]:
    """Returns the rows of a file of any shape: a JSON list or object of rows, JSON lines, a table.

    Args:
        file: Its content decides what it is read as; commas or tabs part the cells of a table.

    Raises:
        InputError: It holds no rows; the message names the line.
    """
    begin = file.text.lstrip()[:1]
    if begin == "[":
        rows = json_of(file)
        return [_object(row, f"entry {n} of {str(file.path)!r}") for n, row in enumerate(rows, 1)]
    if begin == "{":
        return list(_json_lines(file)) if _is_lines(file.text) else [json_of(file)]
    return _table(file)


def _unpacked(data: bytes) -> bytes:
    if data.startswith(b"\x1f\x8b"):
        return gzip.decompress(data)
    return lzma.decompress(data) if data.startswith(b"\xfd7zXZ\x00") else data


def _is_lines(text: str) -> bool:
    """Tells whether the first line is a JSON value of its own: one object may span many lines."""
    first = text.lstrip().split("\n", 1)[0]
    try:
        json.loads(first)
    except ValueError:
        # A single damaged line is still a line; an object over several lines begins like this.
        return first.strip() not in ("{", "[") and first.strip().endswith("}")
    return True


def _json_lines(file: RawFile) -> Iterator[Row]:
    # Not splitlines: it would also cut at separators that may stand inside a JSON text.
    for number, line in enumerate(file.text.split("\n"), start=1):
        if line.strip():
            where = f"line {number} of {str(file.path)!r}"
            try:
                value = json.loads(line)
            except ValueError as error:
                raise InputError(f"{where} is not JSON: {error}") from error
            yield _object(value, where)


def _object(value: Any, where: str) -> Row:
    if not isinstance(value, dict):
        raise InputError(f"{where} is no object: {value!r:.80}")
    return value


def _table(file: RawFile) -> list[Row]:
    head = file.text.split("\n", 1)[0]
    delimiter = "\t" if "\t" in head else ","
    try:
        reader = csv.DictReader(
            io.StringIO(file.text, newline=""), delimiter=delimiter, strict=True
        )
        rows: list[dict[str | Any, Any]] = list(reader)
    except csv.Error as error:
        raise InputError(f"{str(file.path)!r} is no table: {error}") from error
    for number, row in enumerate(rows, start=1):
        if None in row or None in row.values():
            raise InputError(
                f"row {number} of {str(file.path)!r} has not as many cells as its head",
                hint="quote cells that hold the delimiter",
            )
    if not rows:
        raise InputError(f"{str(file.path)!r} has a head but no rows")
    return list(rows)


def texts(value: Any, where: str, name: str) -> tuple[str, ...]:
    """Returns answers that may be one text, a list of texts, or a JSON list written as a text.

    Args:
        value: Of a row.
        where: The row, for messages.
        name: Of the field, for messages.

    Raises:
        InputError: It is nothing of that.
    """
    if isinstance(value, str) and value.strip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return (value,)  # a text that merely begins like a list
    if value is None:
        return ()
    if isinstance(value, str | int | float):
        return (str(value),)
    if isinstance(value, Sequence) and all(isinstance(each, str | int | float) for each in value):
        return tuple(str(each) for each in value)
    raise InputError(f"{where}: {name} must be a text or a list of texts, got {value!r:.80}")
