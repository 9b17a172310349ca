from __future__ import annotations

import json
from pathlib import Path

import pytest

from specrag.errors import InputError
from specrag.evaluation.prompts import load_prompts


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n", encoding="utf-8")
    return path


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    rows: list[dict[str, object]] = [
        {"question_id": 81, "category": "writing", "turns": ["Write.", "Again."]},
        {"question_id": 82, "category": "coding", "turns": ["Code."]},
        {"question_id": 481, "category": "rag", "turns": ["Read."]},
        {"question_id": 482, "category": "rag", "turns": ["Read on."]},
    ]
    return write(tmp_path / "question.jsonl", rows)


def test_sub_categories_of_mt_bench_are_one(questions: Path) -> None:
    prompts = load_prompts(questions)
    assert [(p.id, p.category, p.text) for p in prompts] == [
        ("81", "mt_bench", "Write."),
        ("82", "mt_bench", "Code."),
        ("481", "rag", "Read."),
        ("482", "rag", "Read on."),
    ]


def test_categories_and_counts_are_kept(questions: Path) -> None:
    assert [p.id for p in load_prompts(questions, ["rag"], 1)] == ["481"]


def test_an_unknown_category_suggests_the_nearest(questions: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'rag'"):
        load_prompts(questions, ["rga"])


@pytest.mark.parametrize("line", ["{", "[]", '{"question_id": 1, "category": "rag", "turns": []}'])
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(
        '{"question_id": 1, "category": "rag", "turns": ["a"]}\n' + line, encoding="utf-8"
    )
    with pytest.raises(InputError, match="line 2"):
        load_prompts(path)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the questions"):
        load_prompts(tmp_path / "none.jsonl")
