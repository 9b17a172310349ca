"""Reading the files of evaluation sets: packed or not, as JSON, JSON lines or tables."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import lzma
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a file and what each is called in messages.

    Attributes:
        values: The rows; at least one.
        places: Such as ``line 3 of 'set.jsonl'``, one a row.
    """

    values: tuple[Row, ...]
    places: tuple[str, ...]

    def placed(self) -> Iterator[tuple[str, Row]]:
        """Yields the place of each row and the row."""
        return zip(self.places, self.values, strict=True)


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
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
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
        return parse_json(file.text)
    except ValueError as error:
        raise InputError(f"{str(file.path)!r} is not JSON: {error}") from error


def parse_json(text: str) -> Any:
    """Returns a JSON value whose texts can be written as UTF-8.

    Args:
        text: One JSON value.

    Raises:
        ValueError: It is not JSON, is nested too deeply, or escapes half of a surrogate pair.
    """
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if "\\ud" in text.lower():  # else no escape can make a surrogate
        json.dumps(value, ensure_ascii=False).encode()
    return value


def rows_of(file: RawFile) -> Rows:
    """Returns the rows of a file of any shape: a JSON list or object of rows, JSON lines, a table.

    Args:
        file: Its content decides what it is read as; commas or tabs part the cells of a table.

    Raises:
        InputError: It holds no rows; the message names the line.
    """
    begin = file.text.lstrip()[:1]
    if begin == "[":
        entries = enumerate(json_of(file), start=1)
        return _rows(file, ((f"entry {number}", value) for number, value in entries))
    if begin == "{" and not _is_lines(file.text):
        return _rows(file, [("entry 1", json_of(file))])
    return _rows(file, _json_lines(file) if begin == "{" else _table(file))


def _rows(file: RawFile, found: Iterable[tuple[str, Any]]) -> Rows:
    values, places = [], []
    for number, value in found:
        place = f"{number} of {str(file.path)!r}"
        if not isinstance(value, dict):
            raise InputError(f"{place} is no object: {value!r:.80}")
        values.append(value)
        places.append(place)
    if not values:
        raise InputError(f"{str(file.path)!r} has no rows")
    return Rows(tuple(values), tuple(places))


def _unpacked(data: bytes) -> bytes:
    if data.startswith(b"\x1f\x8b"):
        return gzip.decompress(data)
    return lzma.decompress(data) if data.startswith(b"\xfd7zXZ\x00") else data


def _is_lines(text: str) -> bool:
    """Tells whether the first line is a JSON value of its own: one object may span many lines."""
    first = text.lstrip().split("\n", 1)[0]
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        # A single damaged line is still a line; an object over several lines begins like this.
        return first.strip() not in ("{", "[") and first.strip().endswith("}")
    return True


def _json_lines(file: RawFile) -> Iterator[tuple[str, Any]]:
    # Not splitlines: it would also cut at separators that may stand inside a JSON text.
    for number, line in enumerate(file.text.split("\n"), start=1):
        if line.strip():
            try:
                yield f"line {number}", parse_json(line)
            except ValueError as error:
                place = f"line {number} of {str(file.path)!r}"
                raise InputError(f"{place} is not JSON: {error}") from error


def _table(file: RawFile) -> Iterator[tuple[str, Any]]:
    head = file.text.lstrip().split("\n", 1)[0]
    delimiter = "\t" if "\t" in head else max(",;", key=head.count)
    reader = csv.reader(io.StringIO(file.text, newline=""), delimiter=delimiter, strict=True)
    names: list[str] = []
    line = 1
    try:
        for cells in reader:
            place, line = f"line {line}", reader.line_num + 1
            if not cells:
                continue
            if not names:
                names = _head(cells, f"{place} of {str(file.path)!r}")
            elif len(cells) == len(names):
                yield place, dict(zip(names, cells, strict=True))
            else:
                raise InputError(
                    f"{place} of {str(file.path)!r} has {len(cells)} cells, its head {len(names)}",
                    hint="quote cells that hold the delimiter",
                )
    except csv.Error as error:
        raise InputError(f"line {line} of {str(file.path)!r} is no row: {error}") from error


def _head(cells: Sequence[str], place: str) -> list[str]:
    twice = next((name for name in cells if cells.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{place}: two columns are called {twice!r}")
    return list(cells)


def texts(value: Any, where: str, name: str) -> tuple[str, ...]:
    """Returns answers that may be one text, a list of texts, or a JSON list written as a text.

    Blank ones are left out: every response contains them.

    Args:
        value: Of a row.
        where: The row, for messages.
        name: Of the field, for messages.

    Raises:
        InputError: It is nothing of that.
    """
    if isinstance(value, str) and value.strip().startswith("["):
        try:
            value = parse_json(value)
        except ValueError:
            return (value,)  # a text that merely begins like a list
    if value is None:
        return ()
    if isinstance(value, str | int | float):
        value = [value]
    if isinstance(value, Sequence) and all(isinstance(each, str | int | float) for each in value):
        return tuple(str(each) for each in value if str(each).strip())
    raise InputError(f"{where}: {name} must be a text or a list of texts, got {value!r:.80}")
