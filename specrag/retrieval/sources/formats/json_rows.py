"""JSON and JSON lines. Depends on decoding and rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from specrag.retrieval.document import MetadataValue
from specrag.retrieval.sources.bounds import MAX_JSON_NESTING
from specrag.retrieval.sources.formats.rows import Row, check_characters, contents_of
from specrag.retrieval.sources.formats.text import decoded
from specrag.retrieval.sources.formats.values import MAX_INTEGER
from specrag.retrieval.sources.source import Content, ReadOptions, UnreadableError

_BARE_VALUE = "value"


def read_json(data: bytes, name: str, options: ReadOptions) -> tuple[Content, ...]:
    """Reads a JSON file: a list is a row an element, an object a row a key.

    Args:
        data: The file.
        name: Not looked at.
        options: The columns that make documents; an object is a single row then.

    Raises:
        UnreadableError: It is not JSON.
    """
    text, metadata = decoded(data, options)
    if not text.strip():
        return ()
    value = _parsed(text, "")
    found: Iterator[tuple[str, Any]]
    if isinstance(value, list):
        found = ((f"element {number}", part) for number, part in enumerate(value, start=1))
    elif isinstance(value, dict) and options.text_column is None:
        found = ((f"key {key!r}", {key: part}) for key, part in value.items())
    else:
        found = iter([("it", value)])
    return contents_of(_rows(found), options, metadata)


def read_json_lines(data: bytes, name: str, options: ReadOptions) -> tuple[Content, ...]:
    """Reads a JSON value a line.

    Args:
        data: The file.
        name: Not looked at.
        options: The columns that make documents.

    Raises:
        UnreadableError: A line is not JSON; all of the file is refused then.
    """
    text, metadata = decoded(data, options)
    lines = enumerate(text.split("\n"), start=1)
    found = (
        (f"line {number}", _parsed(line, f"line {number} "))
        for number, line in lines
        if line.strip()
    )
    return contents_of(_rows(found), options, metadata)


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise _too_deep(where) from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, " if not where else ""
        raise UnreadableError(
            f"{where}is not JSON ({place}column {error.colno}: {error.msg})"
        ) from error
    except ValueError as error:
        raise UnreadableError(f"{where}is not JSON ({error})") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _too_deep(where: str) -> UnreadableError:
    return UnreadableError(f"{where}is nested more than {MAX_JSON_NESTING} deep")


def _rows(found: Iterator[tuple[str, Any]]) -> Iterator[Row]:
    num_characters = 0
    for place, value in found:
        cells: dict[str, MetadataValue] = {}
        for key, cell in _flat(value):
            num_characters += len(key)
            check_characters(num_characters)
            cells[key] = cell
        yield Row(place, cells)


def _flat(value: Any) -> Iterator[tuple[str, MetadataValue]]:
    """Yields the values that hold no others, with the path of keys that leads to each."""
    pending: list[tuple[str, Any, int]] = [("", value, 0)]
    while pending:
        path, here, depth = pending.pop()
        if depth > MAX_JSON_NESTING:
            raise _too_deep("")
        if isinstance(here, Mapping):
            parts = [(f"{path}.{key}" if path else str(key), part) for key, part in here.items()]
        elif isinstance(here, list) and any(isinstance(part, Mapping | list) for part in here):
            parts = [(f"{path}.{n}" if path else str(n), part) for n, part in enumerate(here)]
        else:
            if (cell := _cell(here)) is not None:
                yield path or _BARE_VALUE, cell
            continue
        pending.extend((key, part, depth + 1) for key, part in reversed(parts))


def _cell(value: Any) -> MetadataValue | None:
    if isinstance(value, list):
        cells = (_cell(part) for part in value)
        return tuple(_word(cell) for cell in cells if cell is not None) or None
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        return str(value)
    return value if isinstance(value, str | int | float | bool) else None


def _word(cell: MetadataValue) -> str:
    return str(cell).lower() if isinstance(cell, bool) else str(cell)
