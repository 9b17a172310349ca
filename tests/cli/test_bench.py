from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specrag.cli.main import build_app
from specrag.decoding.generator import SpeculativeGenerator
from specrag.models.tiny import tiny_target, tiny_tokenizer


@pytest.fixture
def questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def tiny(model: str, drafter: str, *, dtype: str) -> SpeculativeGenerator:
        assert (model, dtype) == ("smollm2-135m-instruct", "auto")
        return SpeculativeGenerator(tiny_target(), tiny_tokenizer(), drafter)

    monkeypatch.setattr(SpeculativeGenerator, "from_pretrained", tiny)
    path = tmp_path / "question.jsonl"
    row = {"question_id": 1, "category": "rag", "turns": ["abc abc abc"]}
    path.write_text(json.dumps(row), encoding="utf-8")
    return path


def test_bench_prints_json(questions: Path) -> None:
    args = ["bench", str(questions), "--max-tokens", "8", "--json"]
    result = CliRunner().invoke(build_app(args), args)
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["results"]
    assert [row["drafter"] for row in rows] == ["none", "suffix"]


def test_bench_prints_a_table(questions: Path) -> None:
    args = ["bench", str(questions), "--max-tokens", "8", "--drafters", "prompt_lookup"]
    result = CliRunner().invoke(build_app(args), args)
    assert result.exit_code == 0, result.output
    assert [line.split()[:2] for line in result.stdout.splitlines()[2:]] == [
        ["rag", "none"],
        ["rag", "prompt_lookup"],
    ]


def test_bench_refuses_an_empty_list_of_drafters(questions: Path) -> None:
    args = ["bench", str(questions), "--drafters", ","]
    result = CliRunner().invoke(build_app(args), args)
    assert "no drafter is named" in str(result.exception)
