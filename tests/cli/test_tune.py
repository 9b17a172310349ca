from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from specrag.cli.tune import tune
from specrag.errors import ConfigError, InputError, SpecragError
from specrag.evaluation.reports.report import load_report
from specrag.evaluation.tuning import run as run_module
from specrag.models.tiny import tiny_target, tiny_tokenizer
from specrag.rag.build import SpecRAG
from specrag.rag.config import load_pipeline

QUICK = ["--budget-minutes", "0.01", "--max-tokens", "6", "--rounds", "1", "--drafters", "suffix"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "toy"
    tiny_target(5, vocab_size=80, max_context=1024).model.save_pretrained(folder)
    tiny_tokenizer(80).backend.save_pretrained(folder)
    return folder


@pytest.fixture
def prompts(tmp_path: Path, isolated_home: Path) -> Path:
    path = tmp_path / "mine.txt"
    path.write_text("abc abc abc\nwhy is it so\n", encoding="utf-8")
    return path


def run(*args: str) -> tuple[str, str]:
    app = typer.Typer()
    app.command()(tune)
    result = CliRunner().invoke(app, list(args), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def test_a_pipeline_and_a_report_are_written_and_the_pipeline_answers(
    prompts: Path, model: Path, tmp_path: Path
) -> None:
    written, out = tmp_path / "tuned.toml", tmp_path / "report"
    args = [str(prompts), "--model", str(model), *QUICK, "--out", str(out)]
    text, told = run(*args, "--write", str(written))
    assert f"wrote {written}" in told
    assert f"wrote {out}" in told
    assert max(map(len, text.splitlines())) <= 100
    report = load_report(out)
    advice = report.figures["advice"]
    assert all(reason.split()[0] in text for reason in advice["reasons"])
    config = load_pipeline(str(written))
    assert config.drafter.name == advice["drafter"]
    assert config.target.model == str(model)
    answer = SpecRAG.load(str(written)).ask("why?")
    assert answer.usage.completion_tokens > 0
    assert not answer.gate.retrieve


def test_json_is_the_report(prompts: Path, model: Path) -> None:
    report = json.loads(run(str(prompts), "--model", str(model), *QUICK, "--json")[0])
    assert report["kind"] == "tuning"
    assert [row["drafter"] for row in report["figures"]["drafters"]] == ["suffix"]


def test_a_pipeline_is_carried_over(prompts: Path, model: Path, tmp_path: Path) -> None:
    given = tmp_path / "given" / "start.toml"
    given.parent.mkdir()
    (given.parent / "toy").symlink_to(model)
    given.write_text(
        'description = "Mine"\n[target]\nmodel = "./toy"\ndtype = "float32"\n'
        '[retrieval]\nindex = ""\n[gate]\nmode = "never"\n[prompt]\nsystem = "Be brief."\n'
        "[drafter]\nmin_acceptance = 0.2\n[answer]\nmax_tokens = 9\ntemperature = 0.5\n",
        encoding="utf-8",
    )
    written = tmp_path / "tuned.toml"
    run(str(prompts), "--pipeline", str(given), *QUICK, "--write", str(written))
    start, made = load_pipeline(str(given)), load_pipeline(str(written))
    assert made.target.model == "./given/toy"
    assert (made.prompt, made.answer, made.gate) == (start.prompt, start.answer, start.gate)
    assert (made.description, made.drafter.min_acceptance) == ("Mine", 0.2)


@pytest.mark.parametrize(
    ("args", "error", "words"),
    [
        (["--write", "old.toml"], ConfigError, "exists"),
        (["--write", "new.txt"], ConfigError, "ends with .toml"),
        (["--out", "mine.txt"], InputError, "is no folder"),
        (["--drafters", "sufix"], ConfigError, "did you mean 'suffix'"),
        (["--pipeline", "qaa"], ConfigError, "did you mean 'qa'"),
        (["--format", "squid"], ConfigError, "unknown format"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_loaded(
    args: list[str],
    error: type[SpecragError],
    words: str,
    prompts: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(prompts.parent)
    Path("old.toml").touch()
    monkeypatch.setattr(run_module, "_loaded", None)
    with pytest.raises(error) as caught:
        run(str(prompts), *args)
    assert words in str(caught.value)


def test_an_existing_file_is_replaced_when_that_is_asked_for(
    prompts: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    written = tmp_path / "old.toml"
    written.touch()
    run(str(prompts), "--model", "./toy", *QUICK, "--write", str(written), "--force")
    assert load_pipeline(str(written)).target.model == str(model)
