"""Rows keep their lines, whatever the file is written as."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.errors import InputError
from specrag.evaluation.datasets.files import RawFile, json_of, parse_json, rows_of, texts


def raw(text: str) -> RawFile:
    return RawFile(Path("set"), text, "")


def test_blank_lines_count_in_the_numbers_of_lines() -> None:
    rows = rows_of(raw('\n{"a": 1}\n\n\n{"a": 2}\n'))
    assert rows.places == ("line 2 of 'set'", "line 5 of 'set'")
    with pytest.raises(InputError, match="line 4 of 'set' is not JSON"):
        rows_of(raw('{"a": 1}\n\n\n{"a": \n'))


def test_a_row_of_a_table_is_named_by_the_line_it_begins_on() -> None:
    rows = rows_of(raw('q,a\n"two\nlines",x\n\nlast,y\n'))
    assert rows.places == ("line 2 of 'set'", "line 5 of 'set'")
    assert rows.values[0] == {"q": "two\nlines", "a": "x"}
    with pytest.raises(InputError, match="line 3 of 'set' has 1 cells, its head 2"):
        rows_of(raw("q,a\nx,y\nz\n"))
    with pytest.raises(InputError, match="line 2 of 'set' is no row"):
        rows_of(raw('q,a\n"x" y,z\n'))
    with pytest.raises(InputError, match="line 1 of 'set': two columns are called 'q'"):
        rows_of(raw("q,q\nx,y\n"))


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.tuples(*[st.text("ab,;\t\n\" '", max_size=6)] * 2), min_size=1, max_size=5),
    st.sampled_from(",;\t"),
)
def test_tables_of_any_delimiter_are_read_as_written(
    cells: list[tuple[str, str]], delimiter: str
) -> None:
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL)
    writer.writerows([("question", "answer"), *cells])
    found = rows_of(raw(out.getvalue()))
    assert [tuple(row.values()) for row in found.values] == cells
    starts = [int(place.split()[1]) - 1 for place in found.places]
    lines = out.getvalue().replace("\r\n", "\n").split("\n")
    assert all(lines[start].startswith('"') for start in starts)


@settings(deadline=None, max_examples=80)
@given(st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=8)), min_size=1, max_size=5))
def test_json_lines_and_a_json_list_hold_the_same_rows(rows: list[dict[str, str]]) -> None:
    lines = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    assert list(rows_of(raw(lines)).values) == rows
    assert list(rows_of(raw(json.dumps(rows))).values) == rows


@pytest.mark.parametrize("text", ["[]", "q,a\n"])
def test_a_file_without_rows_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="has no rows"):
        rows_of(raw(text))


def test_half_a_surrogate_pair_is_refused_and_a_whole_one_is_not() -> None:
    assert parse_json(r'"\ud83d\ude00"') == "\U0001f600"
    assert parse_json(r'"\\ud800"') == r"\ud800"  # a backslash, not an escape
    for text in (r'["\ud800"]', r'{"\uDC00": 1}'):
        with pytest.raises(ValueError, match="surrogates"):
            parse_json(text)


def test_json_that_is_nested_too_deeply_is_refused() -> None:
    for text in ("[" * 100_000, '{"a":' * 100_000):
        with pytest.raises(InputError, match="too deeply"):
            json_of(raw(text))
        with pytest.raises(InputError, match="'set'"):
            rows_of(raw(text))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ()),
        ("", ()),
        (" ", ()),
        (0, ("0",)),
        (["a", " ", "b"], ("a", "b")),
        ('["a", ""]', ("a",)),
        ("[sic] a", ("[sic] a",)),
        (r'["\ud800"]', (r'["\ud800"]',)),
    ],
)
def test_answers_are_texts_and_never_blank(value: object, expected: tuple[str, ...]) -> None:
    assert texts(value, "here", "answers") == expected
