from __future__ import annotations

import json

import pytest

from specrag.retrieval.sources.formats import rows
from specrag.retrieval.sources.source import ReadOptions, UnreadableError
from tests.retrieval.sources.samples import read, read_one


def test_lines_become_blocks() -> None:
    document = read_one('{"a": 1, "b": {"c": [true, null, "x"]}}\r\n\n"word"\n', "a.jsonl")
    assert document.text == "a: 1\nb.c: true, x\n\nvalue: word"
    assert (document.syntax, document.metadata) == ("rows", {"suffix": ".jsonl"})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([{"a": 1}, {"a": 2.5}], "a: 1\n\na: 2.5"),
        ({"a": {"b": "x"}, "c": [1, 2]}, "a.b: x\n\nc: 1, 2"),
        ({"a": [{"b": 1}, {"b": 2}]}, "a.0.b: 1\na.1.b: 2"),
        ("text", "value: text"),
        ([False], "value: false"),
        ({"a": None, "b": "x\n\n\ny"}, "b: x\ny"),
    ],
)
def test_json_values_become_rows(value: object, text: str) -> None:
    assert read_one(json.dumps(value), "a.json").text == text


def test_each_row_may_be_a_document_with_typed_metadata() -> None:
    options = ReadOptions(text_column="text", id_column="id")
    lines = [
        {"id": 7, "text": "One.", "year": 2020, "ok": True, "tags": ["a", 1], "at": {"x": 0.5}},
        {"id": "b", "text": "Two.", "big": 10**30, "none": None},
    ]
    one, two = read("\n".join(map(json.dumps, lines)), "a.jsonl", options)
    assert (one.id, one.text) == ("a.jsonl#7", "One.")
    assert one.metadata == {
        **{"year": 2020, "ok": True, "tags": ("a", "1"), "at.x": 0.5},
        **{"row": 1, "suffix": ".jsonl"},
    }
    assert two.metadata == {"big": str(10**30), "row": 2, "suffix": ".jsonl"}
    (whole,) = read(json.dumps(lines[0]), "a.json", options)
    assert whole.id == "a.json#7"


def test_halves_of_characters_are_replaced() -> None:
    assert read_one('{"a": "x\\ud800y\\u0000"}', "a.json").text == "a: x\ufffdy\ufffd"


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.jsonl", '{"a": 1}\n{"a":\n', "line 2 is not JSON (column 6: Expecting value)"),
        ("a.json", '{"a": 1\n,}', "is not JSON (line 2, column 2: "),
        ("a.json", '{"a": NaN}', "is not JSON (NaN is no JSON number)"),
        ("a.jsonl", "1\n-Infinity", "line 2 is not JSON (-Infinity is no JSON number)"),
        ("a.json", "[" * 100_000, "is nested more than 64 deep"),
        ("a.json", "[" * 80 + "]" * 80, "is nested more than 64 deep"),
        ("a.json", "1" * 10_000, "is not JSON (Exceeds the limit"),
        ("a.json", "[]", "holds no text"),
        ("a.json", "", "holds no text"),
        ("a.jsonl", "\n\n", "holds no text"),
    ],
)
def test_unusable_json_is_refused(name: str, text: str, reason: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        read(text, name)
    assert caught.value.reason.startswith(reason)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"txt": "x"}, "line 1 has no column 'text'; did you mean 'txt'?"),
        ({"text": "x"}, "line 1 has no column 'id'; allowed: text"),
    ],
)
def test_missing_columns_are_named(line: dict[str, str], reason: str) -> None:
    options = ReadOptions(text_column="text", id_column=None if "txt" in line else "id")
    with pytest.raises(UnreadableError) as caught:
        read(json.dumps(line), "a.jsonl", options)
    assert caught.value.reason.startswith(reason)


def test_the_text_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_TEXT_CHARACTERS", 50)
    with pytest.raises(UnreadableError, match="holds more than 50 characters of text; split it"):
        read(json.dumps([{"a": "x" * 20}] * 3), "a.json")
    long_key = {"k" * 20: {"a": 1, "b": 1, "c": 1}}
    with pytest.raises(UnreadableError, match="holds more than 50 characters of text; split it"):
        read(json.dumps([{"text": "x", **long_key}]), "a.json", ReadOptions(text_column="text"))
