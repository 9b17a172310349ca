"""`specrag bench` from the words that are typed to what is printed and written."""

from __future__ import annotations

import json
import sys
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from specrag.cli.main import build_app
from specrag.decoding.budget import SpeculationConfig
from specrag.decoding.drafter import Drafter
from specrag.decoding.generator import SpeculativeGenerator
from specrag.errors import ConfigError
from specrag.evaluation.measured_acceptance import load_acceptance
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.tiny import tiny_target, tiny_tokenizer
from tests.evaluation.speed.scripted import ScriptedArm

KINDS = ("rag", "rag", "writing", "coding")


@pytest.fixture
def questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def tiny(
        model: str, drafter: Drafter, *, dtype: str, quantization: str, config: SpeculationConfig
    ) -> SpeculativeGenerator:
        assert (model, dtype) == ("smollm2-135m-instruct", "auto")
        return SpeculativeGenerator(tiny_target(), tiny_tokenizer(), drafter, config)

    monkeypatch.setattr(SpeculativeGenerator, "from_pretrained", tiny)
    path = tmp_path / "question.jsonl"
    rows = [
        {"question_id": i, "category": kind, "turns": [f"abc abc abc {i}"]}
        for i, kind in enumerate(KINDS)
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


def bench(questions: Path, *words: str) -> Result:
    args = ["bench", str(questions), "--max-tokens", "8", "--rounds", "1", *words]
    return CliRunner().invoke(build_app(args), args)


def report_of(questions: Path, *words: str) -> dict[str, Any]:
    result = bench(questions, *words, "--json")
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(result.stdout)
    return report


def arms_of(report: dict[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in report["figures"]["results"]:
        found.setdefault(row["category"], []).append(row["drafter"])
    return found


def test_a_report_is_printed_as_json(questions: Path) -> None:
    report = report_of(questions)
    assert (report["kind"], report["schema"]) == ("speed", 1)
    arms = ["none", "suffix"]
    assert arms_of(report) == {"rag": arms, "mt_bench": arms, "all": arms}


def test_a_table_is_printed(questions: Path) -> None:
    result = bench(questions, "--drafters", "prompt_lookup", "--categories", "rag")
    assert result.exit_code == 0, result.output
    words = [line.split()[:2] for line in result.stdout.splitlines()[2:5]]
    assert words == [["rag", "(2"], ["none", "1.00"], ["prompt_lookup", words[2][1]]]


def test_several_drafters_are_measured_side_by_side(questions: Path) -> None:
    report = report_of(questions, "--drafters", "suffix", "--drafters", "prompt_lookup")
    assert arms_of(report)["all"] == ["none", "suffix", "prompt_lookup"]


def test_what_is_measured_can_be_chosen(questions: Path) -> None:
    words = ["--by", "category", "--categories", "rag, coding", "--per-category", "1"]
    report = report_of(questions, *words, "--seed", "5", "--warm-ups", "0", "--threads", "1")
    assert list(arms_of(report)) == ["rag", "coding", "all"]
    told = report["configuration"]
    assert (told["by"], told["categories"], told["per_category"]) == (
        "category", ["rag", "coding"], 1,
    )  # fmt: skip
    assert (told["seed"], told["warm_ups"], told["threads"]) == (5, 0, 1)
    assert (told["max_tokens"], told["rounds"]) == (8, 1)


def test_several_sets_are_measured_in_one_run(questions: Path, tmp_path: Path) -> None:
    other = tmp_path / "mine.jsonl"
    other.write_text('{"question": "a b c", "answer": "d"}\n', encoding="utf-8")
    assert list(arms_of(report_of(questions, str(other)))) == ["rag", "mt_bench", "mine", "all"]


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
    assert bench(questions, *words).exit_code == 0
    assert getattr(taken[0], counter) != getattr(make(), counter)


def test_a_folder_gets_a_report_that_advise_can_read(questions: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one"
    words = ["--out", str(folder), "--policy", "fixed"]
    report = report_of(questions, *words)
    kept = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert kept == report
    labels = {found.label for found in load_acceptance(folder / "report.json")}
    assert labels == {"suffix, rag", "suffix, mt_bench", "suffix, all"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--policy", "god"], "unknown policy 'god'"),
        (["--by", "colour"], "unknown way to group 'colour'"),
        (["--categories", "rga"], "did you mean 'rag'"),
        (["--format", "spec_bunch"], "did you mean 'spec_bench'"),
        (["--drafters", "suffix", "--drafters", "sufix"], "unknown drafter 'sufix'"),
        (["--out", __file__], "is no folder"),
    ],
)
def test_a_typo_does_not_cost_the_time_of_loading(
    words: list[str], message: str, questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SpeculativeGenerator, "from_pretrained", None)
    assert message in str(bench(questions, *words).exception)


def test_a_set_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    assert "gone.jsonl" in str(bench(tmp_path / "gone.jsonl").exception)


def test_a_target_that_decodes_plainly_is_said_to(
    questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HuggingFaceTarget, "no_speculation", "it keeps a state", raising=False)
    result = bench(questions, "--json")
    assert result.stderr.count("decoded plainly: it keeps a state") == 1
    assert json.loads(result.stdout)["figures"]["results"]


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A catalogue of two engines, the second of which fails at its second answer."""
    opened: list[tuple[Any, ...]] = []

    def open_peer(name: str, model: str, *, threads: int, draft: str | None) -> ScriptedArm:
        opened.append((name, model, threads, draft))
        return ScriptedArm(f"peer:{name}", own=False, fails_at=1 if name == "weak" else None)

    def expand(names: tuple[str, ...], model: str) -> list[str]:
        for name in names:
            if name not in ("all", "sound", "weak"):
                raise ConfigError(f"unknown peer {name!r}")
        return ["sound", "weak"] if names == ("all",) else list(names)

    module = ModuleType("specrag.evaluation.peers.catalog")
    vars(module).update(open_peer=open_peer, expand=expand)
    monkeypatch.setitem(sys.modules, "specrag.evaluation.peers.catalog", module)
    package = ModuleType("specrag.evaluation.peers")
    vars(package)["catalog"] = module
    monkeypatch.setitem(sys.modules, "specrag.evaluation.peers", package)
    return opened


def test_peers_are_measured_with_as_many_threads(
    questions: Path, peers: list[tuple[Any, ...]]
) -> None:
    words = ["--peers", "sound", "--draft-model", "small", "--threads", "1"]
    report = report_of(questions, *words)
    assert arms_of(report)["all"] == ["none", "suffix", "peer:sound"]
    assert peers == [("sound", "smollm2-135m-instruct", 1, "small")]


def test_a_peer_that_fails_on_the_way_is_said_at_the_end(
    questions: Path, peers: list[tuple[Any, ...]]
) -> None:
    result = bench(questions, "--peers", "all", "--json")
    assert result.exit_code == 1
    assert "peer:weak failed at 0: the engine is gone" in result.stderr
    report = json.loads(result.stdout)
    assert arms_of(report)["all"] == ["none", "suffix", "peer:sound"]
    assert [draft for *_, draft in peers] == [None, None]


def test_an_unknown_peer_does_not_cost_the_time_of_loading(
    questions: Path, peers: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SpeculativeGenerator, "from_pretrained", None)
    assert "unknown peer 'strong'" in str(bench(questions, "--peers", "strong").exception)
    assert peers == []


def test_a_draft_model_without_peers_is_an_error(
    questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SpeculativeGenerator, "from_pretrained", None)
    result = bench(questions, "--draft-model", "small")
    assert "--draft-model small is for peers, but none is asked for" in str(result.exception)
