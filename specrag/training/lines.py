"""Reading text files line by line: packed or not, each line with the place that messages name."""

from __future__ import annotations

import gzip
import json
import lzma
import zlib
from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from specrag.errors import InputError

_PACKED = (".gz", ".xz")


def is_json_lines(path: Path) -> bool:
    """Tells by its name whether a file holds JSON lines, packed or not.

    Args:
        path: Of the file.
    """
    name = path.with_suffix("") if path.suffix in _PACKED else path
    return name.suffix == ".jsonl"


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yields each line that is not blank, with its place, such as ``line 3 of 'a.jsonl'``.

    Args:
        path: A text file; what gzip or xz packed is unpacked on the way.

    Raises:
        InputError: It cannot be read, is damaged, or is not UTF-8; the message names the place.
    """
    try:
        with _opened(path) as file:
            for number, line in enumerate(file, start=1):
                place = f"line {number} of {str(path)!r}"
                text = _decoded(line, place, first=number == 1)
                if text.strip():
                    yield place, text
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise InputError(
            f"{str(path)!r} is a damaged archive: {error}", hint="pack or copy it again"
        ) from error
    except OSError as error:
        raise InputError(
            f"cannot read {str(path)!r}: {error.strerror or error}", hint="give a file that exists"
        ) from error


def read_objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the JSON object of each line that is not blank, with its place.

    Args:
        path: JSON lines, packed or not.

    Raises:
        InputError: The file cannot be read, or a line is no JSON object.
    """
    for place, line in read_lines(path):
        yield place, _parsed(line, place)


def _parsed(line: str, place: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
        if "\\ud" in line.lower():  # else no escape can make half of a surrogate pair
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{place} is not JSON: {error}",
            hint="mend or remove the line; a file that is still being written may end in one",
        ) from error
    if not isinstance(value, dict):
        raise InputError(f"{place} is no JSON object: {value!r:.80}")
    return value


def _opened(path: Path) -> BufferedIOBase:
    with path.open("rb") as file:
        head = file.read(6)
    if head.startswith(b"\x1f\x8b"):
        return gzip.open(path)
    return lzma.open(path) if head == b"\xfd7zXZ\x00" else path.open("rb")


def _decoded(line: bytes, place: str, *, first: bool) -> str:
    try:
        return line.decode("utf-8-sig" if first else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{place} is not UTF-8 text (byte {error.start})", hint="convert the file first"
        ) from error
