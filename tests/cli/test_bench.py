from __future__ import annotations

import json
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from specrag.cli.main import build_app
from specrag.decoding.budget import SpeculationConfig
from specrag.decoding.generator import SpeculativeGenerator
from specrag.errors import ConfigError
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.tiny import tiny_target, tiny_tokenizer


@pytest.fixture
def questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def tiny(
        model: str, drafter: str, *, dtype: str, config: SpeculationConfig
    ) -> SpeculativeGenerator:
        assert (model, dtype) == ("smollm2-135m-instruct", "auto")
        return SpeculativeGenerator(tiny_target(), tiny_tokenizer(), drafter, config)

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


def test_several_drafters_are_measured_side_by_side(questions: Path) -> None:
    words = ["--drafters", "suffix", "--drafters", "prompt_lookup", "--json"]
    args = ["bench", str(questions), "--max-tokens", "8", *words]
    rows = json.loads(CliRunner().invoke(build_app(args), args).stdout)["results"]
    assert [row["drafter"] for row in rows] == ["none", "suffix", "prompt_lookup"]


@pytest.mark.parametrize(
    ("words", "counter"), [(["--policy", "fixed"], "policy"), (["--strict"], "strict")]
)
def test_how_much_to_speculate_is_passed_on(
    words: list[str], counter: str, questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[SpeculationConfig] = []
    make = SpeculationConfig

    @wraps(make)
    def recording(*args: Any, **options: Any) -> SpeculationConfig:
        taken.append(make(*args, **options))
        return taken[-1]

    monkeypatch.setattr("specrag.decoding.budget.SpeculationConfig", recording)
    args = ["bench", str(questions), "--max-tokens", "4", *words]
    assert CliRunner().invoke(build_app(args), args).exit_code == 0
    assert getattr(taken[0], counter) != getattr(make(), counter)


def test_an_unknown_policy_is_refused(questions: Path) -> None:
    args = ["bench", str(questions), "--policy", "god"]
    result = CliRunner().invoke(build_app(args), args)
    assert "unknown policy 'god'" in str(result.exception)


def test_every_drafter_is_read_before_the_target_is_loaded(
    questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SpeculativeGenerator, "from_pretrained", None)
    args = ["bench", str(questions), "--drafters", "suffix", "--drafters", "sufix"]
    with pytest.raises(ConfigError, match="unknown drafter 'sufix'"):
        build_app(args)(args, standalone_mode=False)


def test_a_target_that_decodes_plainly_is_said_to(
    questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HuggingFaceTarget, "no_speculation", "it keeps a state", raising=False)
    args = ["bench", str(questions), "--max-tokens", "4", "--json"]
    result = CliRunner().invoke(build_app(args), args)
    assert "decoded plainly: it keeps a state" in result.stderr
    assert json.loads(result.stdout)["results"]
