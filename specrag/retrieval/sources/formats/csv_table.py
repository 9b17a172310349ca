"""Tables of separated values. Depends on decoding and rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from specrag.retrieval.document import MetadataValue
from specrag.retrieval.sources.bounds import MAX_TABLE_FILE_BYTES
from specrag.retrieval.sources.formats.rows import Columns, Row, contents_of
from specrag.retrieval.sources.formats.text import decoded
from specrag.retrieval.sources.formats.values import typed_column
from specrag.retrieval.sources.source import Content, ReadOptions, UnreadableError

_SEPARATORS = ",;\t|"
_MAX_COLUMNS = 10_000


def read_csv(data: bytes, name: str, options: ReadOptions) -> tuple[Content, ...]:
    """Reads a table whose first row names the columns; its header tells the separator.

    A row with more cells than the header keeps them under ``column 5`` and so on.

    Args:
        data: The file.
        name: Its name; a suffix ``.tsv`` sets the tab as separator.
        options: The columns that make documents.

    Raises:
        UnreadableError: It is no text or no table.
    """
    text, metadata = decoded(data, options)
    # The bound on a cell is global and meant for untrusted programs' memory; files are bounded.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_TABLE_FILE_BYTES))
    separator = "\t" if name.lower().endswith(".tsv") else _separator(text)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        table = [(lines.line_num, cells) for cells in lines if any(map(str.strip, cells))]
    except csv.Error as error:
        raise UnreadableError(f"is no table: line {lines.line_num}: {error}") from error
    return contents_of(_rows(table), options, metadata) if table else ()


def _separator(text: str) -> str:
    header = text.lstrip("\r\n").partition("\n")[0]
    return max(_SEPARATORS, key=header.count)


def _rows(table: Sequence[tuple[int, list[str]]]) -> Iterator[Row]:
    body = table[1:]
    num_columns = max((len(cells) for _, cells in table), default=0)
    if num_columns > _MAX_COLUMNS:
        raise UnreadableError(f"has {num_columns:,} columns (at most {_MAX_COLUMNS:,})")
    names = _names(table[0][1], num_columns)
    values = [_column(body, number) for number in range(num_columns)]
    for number, (line, _) in enumerate(body):
        cells = {
            name: column[number]
            for name, column in zip(names, values, strict=True)
            if number in column
        }
        yield Row(f"the row that ends on line {line}", Columns(cells, names))


def _column(body: Sequence[tuple[int, list[str]]], number: int) -> dict[int, MetadataValue]:
    """Returns the typed values of a column by row; blank cells have none."""
    filled = {
        row: cells[number]
        for row, (_, cells) in enumerate(body)
        if number < len(cells) and cells[number].strip()
    }
    typed = typed_column([text.strip() for text in filled.values()])
    texts = zip(filled, typed, filled.values(), strict=True)
    return {row: text if isinstance(value, str) else value for row, value, text in texts}


def _names(header: Sequence[str], num_columns: int) -> list[str]:
    names: list[str] = []
    taken: set[str] = set()
    for number in range(num_columns):
        given = header[number].strip() if number < len(header) else ""
        name = base = given or f"column {number + 1}"
        count = 2
        while name in taken:
            name, count = f"{base} {count}", count + 1
        taken.add(name)
        names.append(name)
    return names
