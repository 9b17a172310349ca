"""Rows of tables and JSON become one document, or one each. Depends on bounds and source types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from specrag.errors import suggest
from specrag.retrieval.document import MetadataValue
from specrag.retrieval.sources.bounds import MAX_TEXT_CHARACTERS
from specrag.retrieval.sources.source import Content, ReadOptions, UnreadableError

_BLANK_LINES = re.compile(r"\s*[\r\n]\s*")


@dataclass(frozen=True, slots=True)
class Row:
    """One row.

    Attributes:
        place: Where it stands, such as ``line 3``.
        values: Its cells by column, those without a value left out.
    """

    place: str
    values: Mapping[str, MetadataValue]


def contents_of(
    rows: Iterable[Row], options: ReadOptions, metadata: Mapping[str, MetadataValue]
) -> tuple[Content, ...]:
    """Makes one document of all rows, a block a row, or one of each when a text column is set.

    Args:
        rows: In the order of the file.
        options: The columns.
        metadata: Facts about the whole file.

    Raises:
        UnreadableError: A column is missing, two rows have the same id, or there is too much text.
    """
    if options.text_column is not None:
        return tuple(_documents(rows, options, options.text_column, metadata))
    parts: list[str] = []
    num_characters = 0
    for row in rows:
        parts.append("\n".join(f"{key}: {_shown(value)}" for key, value in row.values.items()))
        num_characters += len(parts[-1]) + 2
        check_characters(num_characters)
    return (Content("\n\n".join(filter(None, parts)), "rows", metadata=metadata),)


def check_characters(num_characters: int) -> None:
    """Refuses more text than a document may have.

    Args:
        num_characters: How much there is.

    Raises:
        UnreadableError: It is too much.
    """
    if num_characters > MAX_TEXT_CHARACTERS:
        raise UnreadableError(
            f"holds more than {MAX_TEXT_CHARACTERS:,} characters of text; split it"
        )


def _documents(
    rows: Iterable[Row],
    options: ReadOptions,
    text_column: str,
    metadata: Mapping[str, MetadataValue],
) -> Iterator[Content]:
    places: dict[str, str] = {}
    num_characters = 0
    for number, row in enumerate(rows, start=1):
        values = dict(row.values)
        key = str(number) if options.id_column is None else _taken(row, values, options.id_column)
        if key in places:
            raise UnreadableError(f"{row.place} has the id {key!r} of {places[key]}")
        places[key] = row.place
        title = _taken_or_none(values, options.title_column)
        text = _taken_or_none(values, text_column)
        if text is None:
            _check_column(row, text_column)
            continue  # an empty cell holds nothing to search
        num_characters += len(text)
        check_characters(num_characters)
        facts = {**values, **metadata, "row": number}
        yield Content(text, "plain", title, facts, key=key)


def _taken(row: Row, values: dict[str, MetadataValue], column: str) -> str:
    value = _taken_or_none(values, column)
    if value is None:
        _check_column(row, column)
        raise UnreadableError(f"{row.place} has no value for {column!r}")
    return value


def _taken_or_none(values: dict[str, MetadataValue], column: str | None) -> str | None:
    value = values.pop(column, None) if column is not None else None
    shown = "" if value is None else _shown(value) if isinstance(value, tuple) else str(value)
    return shown if shown.strip() else None


def _check_column(row: Row, column: str) -> None:
    if column not in row.values and _is_unknown(row, column):
        raise UnreadableError(
            f"{row.place} has no column {column!r}; {suggest(column, row.values)}"
        )


def _is_unknown(row: Row, column: str) -> bool:
    return not isinstance(row.values, Columns) or column not in row.values.names


class Columns(dict[str, MetadataValue]):
    """The cells of a table's row, which know of columns that are empty in it.

    Attributes:
        names: All columns of the table.
    """

    def __init__(self, cells: Mapping[str, MetadataValue], names: Sequence[str]) -> None:
        super().__init__(cells)
        self.names = names


def _shown(value: MetadataValue) -> str:
    if isinstance(value, tuple):
        return ", ".join(_shown(part) for part in value)
    if isinstance(value, bool):
        return str(value).lower()
    # A blank line would end the row's block.
    return _BLANK_LINES.sub("\n", str(value).strip())
