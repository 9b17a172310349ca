from __future__ import annotations

import json
from pathlib import Path

import pytest

from specrag.errors import ConfigError, InputError
from specrag.evaluation.tuning.prompts import BUILT_IN, read_prompts, split_text


def test_without_a_source_there_are_ours() -> None:
    source = read_prompts(None)
    assert source.built_in
    assert [question.text for question in source.questions] == [text for _, text in BUILT_IN]
    assert len({question.id for question in source.questions}) == len(BUILT_IN)
    assert len(read_prompts(None, count=3).questions) == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one\ntwo\nthree\n", ["one", "two", "three"]),
        ("one\r\ntwo\r\n", ["one", "two"]),
        ("\n\none\ntwo\n\n\n", ["one", "two"]),
        ("one\nmore\n\ntwo\n", ["one\nmore", "two"]),
        ("one\nmore\n \t\n\n\ntwo\n  indented", ["one\nmore", "two\n  indented"]),
    ],
)
def test_plain_text_is_split_at_blank_lines_or_else_at_every_line(
    text: str, expected: list[str]
) -> None:
    assert split_text(text) == expected


def test_a_text_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("what is up?\nwhy?\nhow?\n", encoding="utf-8")
    source = read_prompts(str(path), count=2)
    assert [question.text for question in source.questions] == ["what is up?", "why?"]
    assert not source.built_in
    drawn = [read_prompts(str(path), count=2, seed=seed).questions for seed in range(20)]
    assert len(set(drawn)) > 2
    assert read_prompts(str(path), count=2, seed=3).questions == drawn[3]


def test_kinds_of_a_set_are_taken_in_turn(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    kinds = ["code", "code", "code", "chat", "maths"]
    rows = [
        {"question_id": number, "category": kind, "turns": [f"{kind} {number}"]}
        for number, kind in enumerate(kinds)
    ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    texts = [question.text for question in read_prompts(str(path), count=4).questions]
    assert texts == ["code 0", "chat 3", "maths 4", "code 1"]


def test_one_prompt_is_too_few(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("what is up?\n", encoding="utf-8")
    with pytest.raises(InputError, match="holds one prompt"):
        read_prompts(str(path))


@pytest.mark.parametrize("name", ["missing.txt", "missing.jsonl"])
def test_a_file_that_is_not_there_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_prompts(str(tmp_path / name))


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("one\ntwo\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="unknown format"):
        read_prompts(str(path), format="squid")
