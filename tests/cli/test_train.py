from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from specrag.cli.train import app
from specrag.errors import ConfigError, InputError, SpecragError
from specrag.models.tiny import tiny_target, tiny_tokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "toy"
    tiny_target(5, vocab_size=80, peakedness=1.0).model.save_pretrained(folder)
    tiny_tokenizer(80).backend.save_pretrained(folder)
    return folder


@pytest.fixture
def prompts(tmp_path: Path, isolated_home: Path) -> Path:
    path = tmp_path / "mine.txt"
    path.write_text("why is it so\nabc abc\nWHY is it  so\nsecret\n", encoding="utf-8")
    return path


def run(*args: object) -> tuple[str, str]:
    root = typer.Typer()
    root.add_typer(app, name="train")
    words = ["train", "corpus", *map(str, args)]
    result = CliRunner().invoke(root, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def test_a_corpus_is_made_and_gone_on_with(prompts: Path, model: Path, tmp_path: Path) -> None:
    out, secret = tmp_path / "a.jsonl", tmp_path / "secret.txt"
    secret.write_text("Secret\n", encoding="utf-8")
    args = ["--out", out, "--prompts", prompts, "--exclude", secret, "--target", model]
    args += ["--max-tokens", "6", "--own", "2", "--temperatures", "0,0.5"]
    text, told = run(*args)
    assert "4 answers" in text
    assert "1 excluded, 1 repeated" in text
    assert "2 own" in text
    assert max(map(len, text.splitlines())) <= max(80, len(str(out)) + 30)
    found = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert {row["temperature"] for row in found} == {0.0, 0.5}
    assert {"abc abc", "why is it so"} < {row["prompt"] for row in found}
    data = json.loads(run(*args, "--rows", "8", "--json")[0])
    assert (data["num_rows"], data["num_new_rows"], data["num_own"]) == (8, 8, 2)


@pytest.mark.parametrize(
    ("args", "kind", "said"),
    [
        ([], ConfigError, "neither --prompts nor --own is given"),
        (["--own", "1", "--temperatures", "0;1"], ConfigError, "--temperatures needs numbers"),
        (["--own", "1", "--temperatures", "-1"], ConfigError, "temperatures must be"),
        (["--prompts", "no.txt"], InputError, "cannot read 'no.txt'"),
        (["--own", "1", "--exclude", "no.txt"], InputError, "cannot read 'no.txt'"),
        (["--own", "1", "--drafter", "sufix"], ConfigError, "suffix"),
        (["--own", "1", "--out", "a.txt"], ConfigError, "written as JSON lines"),
    ],
)
def test_what_cannot_be_done_is_said(
    args: list[str],
    kind: type[SpecragError],
    said: str,
    tmp_path: Path,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=said):
        run("--out", "a.jsonl", "--target", model, *args)
