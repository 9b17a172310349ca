from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.errors import InputError
from specrag.retrieval.filters import OPERATORS, Condition, Filter
from tests.oracles.metadata_filter import matches

Row = tuple[str, str, str | None, dict[str, Any]]

ROWS: list[Row] = [
    ("a.md", "docs/a.md", "Gate", {"year": 2020, "lang": "en", "tag": ["a", "b"], "open": True}),
    ("b.md", "docs/b.md", None, {"year": 2021.5, "lang": "zh", "tag": [], "open": False}),
    ("c.md", "docs/c.md", "Tree", {"year": "2020", "lang": "en", "tag": "a", "open": 1}),
    ("d.md", "docs/d.md", "", {"a.b": 1, "a": {"b": 2, "c": {"d": "deep"}}, "title": "inner"}),
    ("e.md", "docs/e.md", "Gate", {}),
]


def ids(where: Filter, rows: Sequence[Row] = ROWS) -> list[str]:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE documents (id TEXT, source TEXT, title TEXT, metadata TEXT)")
    connection.executemany(
        "INSERT INTO documents VALUES (?, ?, ?, ?)",
        [(*row[:3], json.dumps(row[3], ensure_ascii=False)) for row in rows],
    )
    condition, parameters = where.sql()
    statement = f"SELECT d.id FROM documents AS d WHERE {condition} ORDER BY d.rowid"
    found = [key for (key,) in connection.execute(statement, parameters)]
    connection.close()
    return found


def short(where: Filter) -> str:
    return "".join(key[0] for key in ids(where))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, "abcde"),
        ({"year": 2020}, "a"),
        ({"year": "2020"}, "c"),
        ({"year": [2020, "2020"]}, "ac"),
        ({"year": {">=": 2020}}, "ab"),
        ({"year": {">": 2020, "<=": 2021.5}}, "b"),
        ({"year": {">=": "2"}}, "c"),
        ({"year": {"!=": 2020}}, "bcde"),
        ({"year": {"not in": [2020, 2021.5]}}, "cde"),
        ({"year": {"in": []}}, ""),
        ({"year": {"not in": []}}, "abcde"),
        ({"year": {"exists": True}}, "abc"),
        ({"year": {"exists": False}}, "de"),
        ({"lang": "en", "tag": "a"}, "ac"),
        ({"tag": ["b", "z"]}, "a"),
        ({"tag": {"<": "b"}}, "ac"),
        ({"tag": {"exists": True}}, "ac"),
        ({"open": True}, "a"),
        ({"open": False}, "b"),
        ({"open": 1}, "c"),
        ({"open": {"<": "b"}}, ""),
        ({"open": {">=": 0}}, "c"),
        ({"year": {"<": "a"}}, "c"),
        ({"document": "a.md"}, "a"),
        ({"source": {">": "docs/c"}}, "cde"),
        ({"title": "Gate"}, "ae"),
        ({"title": {"exists": False}}, "b"),
        ({"title": {"!=": "Gate"}}, "bcd"),
        ({"metadata.title": "inner"}, "d"),
        ({"a.b": 1}, "d"),
        ({"a.b": 2}, ""),
        ({"a.c.d": "deep"}, "d"),
        ({"a.c": {"exists": True}}, "d"),
        ({"lang.x": {"exists": True}}, ""),
        ({"nothing": "x"}, ""),
    ],
)
def test_plain_data_says_what_passes(wanted: Mapping[str, Any], expected: str) -> None:
    assert short(Filter.of(wanted)) == expected


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["year>=2020"], "ab"),
        (["year >= 2020", "year < 2021"], "a"),
        (["year=2020"], "ac"),
        (['year="2020"'], "c"),
        (["year!=2020"], "bde"),
        (["lang=en"], "ac"),
        (["  lang = en  "], "ac"),
        (["tag in b,c"], "a"),
        (['tag in "b" , "c,d"'], "a"),
        (["tag not in a"], "bde"),
        (["tag  not  in  a , b"], "bde"),
        (["open=true"], "a"),
        (["open=false"], "b"),
        (["year exists"], "abc"),
        (["year not exists"], "de"),
        (["title=Gate"], "ae"),
        (['title=""'], "d"),
        (["a.c.d=deep"], "d"),
        (["year>-1.5e3"], "ab"),
        (["source>docs/d"], "de"),
        ([], "abcde"),
    ],
)
def test_a_command_line_says_what_passes(typed: list[str], expected: str) -> None:
    assert short(Filter.parse(typed)) == expected


@pytest.mark.parametrize(
    ("typed", "message", "hint"),
    [
        ("year=>2020", "unknown operator '=>' in the filter of 'year'", "allowed: !=, <, <=, ="),
        ("year==2020", "unknown operator '=='", "did you mean '='"),
        ("year~2020", "unknown operator '~'", "allowed"),
        ("year", "cannot read the filter 'year'", "write it like 'year>=2020'"),
        ("", "cannot read the filter ''", "write it like"),
        ("=5", "cannot read the filter '=5'", "write it like"),
        ("tag within a", "cannot read the filter", "write it like"),
        ("year=", "compares with nothing", 'write ""'),
        ("tag in ", "compares with nothing", 'write ""'),
        ('tag in a"b,c', "cannot read the list", "separate values by commas"),
        ('tag in "a', "cannot read the list", "separate values by commas"),
        ("year>=true", "needs a number or a text after '>=', got True", None),
        ("metadata.=1", "needs the name of a field", None),
        ("a\0b=1", "cannot hold NUL", None),
    ],
)
def test_what_cannot_be_read_is_explained(typed: str, message: str, hint: str | None) -> None:
    with pytest.raises(InputError) as caught:
        Filter.parse([typed])
    assert message in caught.value.message
    assert hint is None or hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("wanted", "message", "hint"),
    [
        ({"year": {"=>": 2020}}, "unknown operator '=>'", "allowed: !=, <"),
        ({"year": {"exist": True}}, "unknown operator 'exist'", "did you mean 'exists'?"),
        ({"year": {5: True}}, "unknown operator 5", "allowed"),
        ({"year": {"in": "ab"}}, "needs a list after 'in', got 'ab'", '"in": ["a", "b"]'),
        ({"year": {"exists": "yes"}}, "needs true or false after 'exists', got 'yes'", None),
        ({"year": {"<": True}}, "needs a number or a text after '<', got True", None),
        ({"year": {"<": [1]}}, "compares with [1]", None),
        ({"year": None}, "compares with None", '{"exists": False}'),
        ({"year": [None]}, "compares with None", '{"exists": False}'),
        ({"year": {}}, "cannot read the filter {'year': {}}", "write"),
        ({5: 1}, "cannot read the filter {5: 1}", "write"),
        ({"": 1}, "needs the name of a field, got ''", None),
        ({"year": float("nan")}, "out of range", None),
        ({"year": float("inf")}, "out of range", None),
        ({"year": 2**63}, "out of range", None),
        ({"year": 10**400}, "out of range", None),
        ({"year": "\ud800"}, "half of a character", None),
        ({"\ud800": 1}, "half of a character", None),
    ],
)
def test_data_that_cannot_be_used_is_explained(
    wanted: dict[Any, Any], message: str, hint: str | None
) -> None:
    with pytest.raises(InputError) as caught:
        Filter.of(wanted)
    assert message in caught.value.message
    assert hint is None or hint in (caught.value.hint or "")


def test_long_numbers_of_a_command_line_are_texts() -> None:
    rows: list[Row] = [("a", "", None, {"key": "9" * 30}), ("b", "", None, {"key": 1})]
    assert ids(Filter.parse([f"key={'9' * 30}"]), rows) == ["a"]
    assert ids(Filter.parse([f"key={'9' * 5000}"]), rows) == []
    assert ids(Filter.parse(["key=1e999"]), rows) == []


def test_fields_that_no_document_has_are_named() -> None:
    where = Filter.of({"yaer": 1, "title": "x", "metadata.title": "x", "a.b": 1})
    assert where.field_names == ("yaer", "title", "a.b")
    where.check(["yaer", "title", "a"])
    where.check(["yaer", "title", "a.b"])
    with pytest.raises(InputError, match="no document has the field 'yaer'") as caught:
        where.check(["year", "title", "a"])
    assert "did you mean 'year'?" in str(caught.value)
    with pytest.raises(InputError, match="no document has the field 'a.b'"):
        where.check(["yaer", "title", "b"])
    Filter.of({"document": "x", "source": "y", "title": "z"}).check([])


HOSTILE = [
    "'",
    '"',
    "x' OR '1'='1",
    "$.a",
    "a]b",
    "?",
    "%",
    "a\nb",
    "😀",
    "'; DROP TABLE x; --",
    "--",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_names_and_values_never_become_sql(text: str) -> None:
    rows: list[Row] = [("a", "", None, {text: text}), ("b", "", None, {"x": "y"})]
    assert ids(Filter.of({text: text}), rows) == ["a"]
    assert ids(Filter.of({f"x.{text}": text}), rows) == []
    condition, _ = Filter.of({text: text}).sql()
    plain, _ = Filter.of({"name": "value"}).sql()
    assert condition == plain or "." in text


def test_a_list_may_be_longer_than_what_sqlite_takes_as_parameters() -> None:
    where = Filter.of({"year": list(range(50_000))})
    assert short(where) == "a"
    assert len(where.sql()[1]) < 10


def test_names_with_many_dots_work() -> None:
    metadata: dict[str, Any] = {"end": 5}
    for _ in range(6):
        metadata = {"x": metadata}
    rows: list[Row] = [("a", "", None, metadata)]
    assert ids(Filter.of({"x.x.x.x.x.x.end": 5}), rows) == ["a"]
    assert ids(Filter.of({"x.x.x.x.x.end": 5}), rows) == []


_SCALARS = st.one_of(
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-(2**63) + 1, 2**63 - 1),
    st.floats(-3, 3, width=16),
    st.sampled_from([0.1, 1e300, -0.0, 2.0**53]),
    st.sampled_from(["", "a", "b", "ab", "1", "true", "é", "草", "😀", "[1]", "{}", "null", '"']),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3),
)
_KEYS = st.sampled_from(["a", "b", "a.b", "a.b.c", "title", "x y", '"'])
_VALUES = st.recursive(
    st.one_of(_SCALARS, st.none(), st.lists(st.one_of(_SCALARS, st.none()), max_size=3)),
    lambda inner: st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=5,
)
_NAMES = st.one_of(
    _KEYS, st.sampled_from(["document", "source", "metadata.title", "b.a", "a.b.c.a", "metadata.a"])
)


@st.composite
def _conditions(draw: st.DrawFn) -> tuple[str, str, Any]:
    sign = draw(st.sampled_from(OPERATORS))
    if sign == "exists":
        return draw(_NAMES), sign, draw(st.booleans())
    if sign in ("in", "not in"):
        return draw(_NAMES), sign, draw(st.lists(_SCALARS, max_size=4))
    ordered = _SCALARS.filter(lambda value: not isinstance(value, bool))
    return draw(_NAMES), sign, draw(_SCALARS if sign in ("=", "!=") else ordered)


@given(
    st.lists(
        st.tuples(st.sampled_from(["", "a", None]), st.dictionaries(_KEYS, _VALUES)), max_size=5
    ),
    st.lists(_conditions(), max_size=3),
)
@settings(deadline=None, max_examples=100)
def test_sqlite_agrees_with_plain_python(
    documents: list[tuple[str | None, dict[str, Any]]], asked: list[tuple[str, str, Any]]
) -> None:
    rows: list[Row] = [
        (f"{number}", f"{number}.md", title, metadata)
        for number, (title, metadata) in enumerate(documents)
    ]
    conditions = [
        Condition(name, sign, tuple(wanted) if isinstance(wanted, list) else (wanted,))
        for name, sign, wanted in asked
    ]
    expected = [
        key
        for key, source, title, metadata in rows
        if all(
            matches({"document": key, "source": source, "title": title}, metadata, *one)
            for one in asked
        )
    ]
    assert ids(Filter(tuple(conditions)), rows) == expected
