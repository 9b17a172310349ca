from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from specrag.cli import gate as module
from specrag.cli.main import build_app
from specrag.errors import ConfigError, GateError, InputError, SpecragError
from specrag.gate.calibration import Calibration, LabelledSignals
from specrag.gate.policy import CalibratedGate
from specrag.home import find_definition
from specrag.rag import calibrate as fitting
from specrag.rag.build import SpecRAG, calibration_path
from specrag.rag.calibrate import (
    LabelledQuestion,
    calibrate,
    default_labels,
    default_output,
    load_labels,
)
from specrag.rag.config import GateConfig, PipelineConfig, RetrievalConfig, load_pipeline
from specrag.rag.events import PassagesEvent

QUESTIONS = [
    LabelledQuestion(f"{what} the {where}{mark}", retrieve)
    for what, retrieve in (("Who sings in", True), ("Say hello to", False))
    for where in ("sea", "sky", "soil", "cellar", "wood")
    for mark in ("?", "")
]
Run = Callable[..., tuple[str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tiny_rag: SpecRAG) -> Run:
    def run(*args: str, stdin: str = "") -> tuple[str, str]:
        words = ["gate", *args]
        result = CliRunner().invoke(build_app(words), words, input=stdin, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout, result.stderr

    monkeypatch.setattr(SpecRAG, "load", lambda *args, **kwargs: tiny_rag)
    monkeypatch.setattr(SpecRAG, "from_config", lambda *args, **kwargs: tiny_rag)
    return run


@pytest.fixture(scope="module")
def fitted(tiny_rag: SpecRAG) -> Calibration:
    return calibrate(tiny_rag, QUESTIONS)


def write_labels(path: Path, questions: list[LabelledQuestion]) -> Path:
    lines = [json.dumps({**dataclasses.asdict(item), "kind": "x"}) for item in questions]
    path.write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    return path


def with_gate(
    monkeypatch: pytest.MonkeyPatch, rag: SpecRAG, fitted: Calibration, changes: dict[str, Any]
) -> None:
    monkeypatch.setattr(rag, "gate", CalibratedGate(dataclasses.replace(fitted, **changes)))


ZONES: dict[str, dict[str, Any]] = {
    "confident": {"confident_above": 0.0, "needed_below": 0.0},
    "needed": {"confident_above": 2.0, "needed_below": 2.0},
    "unsure": {"confident_above": 2.0, "needed_below": 0.0, "min_score": -1.0},
}


@pytest.mark.parametrize("zone", ZONES)
def test_explain_shows_the_decision_with_all_figures(
    zone: str,
    run: Run,
    tiny_rag: SpecRAG,
    fitted: Calibration,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_gate(monkeypatch, tiny_rag, fitted, ZONES[zone])
    decision, passages = tiny_rag.explain("Who sings?")
    assert decision.zone == zone
    assert bool(passages) == decision.retrieve
    printed, errors = run("explain", "Who sings?")
    assert errors == ""
    words = " ".join(printed.split())
    answer = "yes" if decision.retrieve else "no"
    assert words.startswith(f"Retrieve {answer} Zone {zone} Reason {decision.reason} p_without ")
    figures = {**decision.signals, "p_without": decision.p_without, "threshold": decision.threshold}
    for name, value in figures.items():
        shown = f"{value:.4f}" if isinstance(value, float) else str(value)
        assert f"{name:<26}{shown:>12}\n" in printed
    assert decision.fingerprint in printed
    for found in passages:
        assert f"passage  {found.score:.2f}  {found.passage.document}, characters " in printed
    assert all(len(line) <= 80 for line in printed.splitlines())


def test_explain_as_json_holds_the_same(
    run: Run, tiny_rag: SpecRAG, fitted: Calibration, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gate(monkeypatch, tiny_rag, fitted, ZONES["needed"])
    decision, passages = tiny_rag.explain("Who sings?")
    expected = {**decision.to_dict(), **PassagesEvent(passages).to_dict()}
    assert json.loads(run("explain", "-", "--json", stdin="Who sings?\n")[0]) == expected


def test_explain_says_when_no_signals_were_read(run: Run) -> None:
    printed = run("explain", "Who sings in the sea?")[0]
    assert "Zone        fixed\n" in printed
    assert "no signals were read\n" in printed
    assert "p_without" not in printed


@pytest.mark.parametrize(
    ("args", "kind", "message"),
    [
        (["explain", " "], InputError, "the question is blank"),
        (["explain", "q", "-p", "aq"], ConfigError, "no definition named 'aq'"),
        (["calibrate", "-p", "aq"], ConfigError, "no definition named 'aq'"),
        (["calibrate", "--labels", "no.jsonl"], InputError, "cannot read the labelled questions"),
        (["calibrate", "--output", "no/such/x.json"], GateError, "cannot write a calibration"),
    ],
)
def test_what_cannot_be_used_is_refused(
    args: list[str], kind: type[SpecragError], message: str
) -> None:
    words = ["gate", *args]
    with pytest.raises(kind) as refused:
        CliRunner().invoke(build_app(words), words, catch_exceptions=False)
    assert message in refused.value.message


def test_calibrate_writes_what_it_fits(run: Run, fitted: Calibration, tmp_path: Path) -> None:
    labels = write_labels(tmp_path / "labels.jsonl", QUESTIONS)
    output = tmp_path / "out.json"
    printed, hint = run("calibrate", "--labels", str(labels), "--output", str(output))
    assert Calibration.load(output) == fitted
    report = fitted.report
    lines = printed.splitlines()
    assert lines[0] == f"20 questions, AUROC {report['auroc']:.3f} (out of fold)"
    assert lines[2].split()[-3:] == ["confident", "unsure", "needed"]
    for line, key in zip(lines[3:5], ("needs_documents", "needs_none"), strict=True):
        shares = [float(word.rstrip("%")) / 100 for word in line.split()[-3:]]
        assert shares[0] == pytest.approx(report[f"{key}_confident"], abs=0.001)
        assert shares[2] == pytest.approx(report[f"{key}_needed"], abs=0.001)
        assert sum(shares) == pytest.approx(1, abs=0.002)
    assert lines[-1] == f"written to  {output}"
    assert 'calibration = "out.json"' in hint


def test_calibrate_as_json(run: Run, fitted: Calibration, tmp_path: Path) -> None:
    labels = write_labels(tmp_path / "labels.jsonl", QUESTIONS)
    output = tmp_path / "out.json"
    words = ["--labels", str(labels), "--output", str(output), "--json"]
    printed, hint = run("calibrate", *words)
    assert json.loads(printed) == {
        "path": str(output),
        "fingerprint": fitted.fingerprint,
        "fitted_on": dict(fitted.fitted_on),
        "num_labels": 20,
        "confident_above": fitted.confident_above,
        "needed_below": fitted.needed_below,
        "min_score": fitted.min_score,
        "report": dict(fitted.report),
    }
    assert hint == ""


def test_calibrate_needs_no_calibration_to_start_with(run: Run, tmp_path: Path) -> None:
    write_labels(tmp_path / "calibration.jsonl", QUESTIONS)
    (tmp_path / "recipe.toml").write_text("", encoding="utf-8")
    pipeline = tmp_path / "own.toml"
    pipeline.write_text(
        '[retrieval]\nindex = "./recipe.toml"\n[gate]\ncalibration = "fit.json"', encoding="utf-8"
    )
    printed, hint = run("calibrate", "-p", str(pipeline))
    assert f"written to  {tmp_path / 'fit.json'}" in printed
    assert hint == ""  # the pipeline names the file, so there is nothing left to do
    assert Calibration.load(tmp_path / "fit.json").num_labels == 20


def test_calibrate_measures_what_the_gate_sees(
    tiny_rag: SpecRAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []

    def fit(rows: list[LabelledSignals], parts: dict[str, str]) -> str:
        taken.extend([rows, parts])
        return "fitted"

    monkeypatch.setattr(fitting, "fit", fit)
    assert calibrate(tiny_rag, QUESTIONS[9:11]) == "fitted"  # type: ignore[comparison-overlap]
    rows, parts = taken
    assert parts == tiny_rag.fingerprints()
    assert tiny_rag.retriever is not None
    for row, item in zip(rows, QUESTIONS[9:11], strict=True):
        assert row.signals == tiny_rag.signals_of(item.question)
        assert row.retrieve == item.retrieve
        assert row.top_score == tiny_rag.retriever.retrieve(item.question, 3)[0].score


def test_progress_is_shown_on_request(
    tiny_rag: SpecRAG, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "fit", lambda rows, parts: None)
    calibrate(tiny_rag, QUESTIONS[:1])
    assert capsys.readouterr().err == ""
    calibrate(tiny_rag, QUESTIONS[:1], progress=True)
    assert "measuring: 100%" in capsys.readouterr().err


def test_without_an_index_there_is_nothing_to_fit(
    tiny_rag: SpecRAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny_rag, "retriever", None)
    with pytest.raises(ConfigError, match="'tiny' has no index"):
        calibrate(tiny_rag, QUESTIONS)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "Expecting property name"),
        ("[1]", r"expected an object, got \[1\]"),
        ('{"retrieve": true}', "question must be a text that is not blank, got None"),
        ('{"question": " ", "retrieve": true}', "question must be a text that is not blank"),
        ('{"question": 5, "retrieve": true}', "question must be a text that is not blank, got 5"),
        ('{"question": "q"}', "retrieve must be true or false, got None"),
        ('{"question": "q", "retrieve": 1}', "retrieve must be true or false, got 1"),
        ('{"question": "q", "retrieve": "yes"}', "retrieve must be true or false, got 'yes'"),
    ],
)
def test_a_bad_line_is_named_with_the_reason(line: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(f'{{"question": "q", "retrieve": true}}\n\n{line}\n', encoding="utf-8")
    with pytest.raises(InputError, match=rf"labels\.jsonl, line 3: {reason}"):
        load_labels(path)


def test_labels_keep_their_order_and_their_text(tmp_path: Path) -> None:
    questions = [*QUESTIONS, LabelledQuestion("a\u2028b", False)]
    assert load_labels(write_labels(tmp_path / "labels.jsonl", questions)) == questions
    raw = json.dumps({"question": "a\u2028b", "retrieve": False}, ensure_ascii=False)
    (tmp_path / "raw.jsonl").write_text(raw, encoding="utf-8")
    assert load_labels(tmp_path / "raw.jsonl") == [LabelledQuestion("a\u2028b", False)]


@pytest.mark.parametrize("content", [None, b"\xff"])
def test_labels_that_cannot_be_read_are_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match="cannot read the labelled questions"):
        load_labels(path)


def test_the_files_of_the_default_pipeline_are_found() -> None:
    config = load_pipeline("qa")
    labels = default_labels(config)
    recipe = find_definition("indexes", "handbook", "handbook/recipe.toml")
    assert labels == recipe.with_name("calibration.jsonl")
    questions = load_labels(labels)
    assert min(sum(item.retrieve == wanted for item in questions) for wanted in (1, 0)) >= 10
    assert default_output(config).parent == config.folder


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ("./own/recipe.toml", "own/calibration.jsonl"),
        ("own/recipe.toml", "own/calibration.jsonl"),
        ("./own", "calibration.jsonl"),
    ],
)
def test_labels_lie_beside_the_recipe(index: str, expected: str, tmp_path: Path) -> None:
    config = PipelineConfig(folder=tmp_path, retrieval=RetrievalConfig(index=index))
    assert default_labels(config) == tmp_path / expected


def test_the_calibration_lies_where_the_pipeline_looks_for_it(tmp_path: Path) -> None:
    config = PipelineConfig(name="own", folder=tmp_path)
    assert default_output(config) == tmp_path / "own.gate.json"
    named = dataclasses.replace(config, gate=GateConfig(calibration="x.json"))
    assert default_output(named) == calibration_path(named) == tmp_path / "x.json"


def test_the_default_pipeline_is_that_of_the_library() -> None:
    default = inspect.signature(SpecRAG.load).parameters["pipeline"].default
    for command in (module.explain, module.calibrate):
        assert inspect.signature(command).parameters["pipeline"].default == default
