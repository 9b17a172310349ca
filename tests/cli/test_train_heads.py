from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import specrag.cli.train_heads  # noqa: F401 - adds its commands
from specrag.cli.train import app
from specrag.errors import ConfigError, InputError, ModelError, SpecragError
from specrag.evaluation.reports.report import Report
from tests.training.kit import TOKENIZER, corpus, target

KINDS = {"eagle": "eagle3", "medusa": "medusa", "distill": "draft"}
FEW = ["--epochs", "1.5", "--batch-tokens", "150", "--evaluate-every", "2", "--vocabulary", "50"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "toy"
    target().model.save_pretrained(folder)
    TOKENIZER.backend.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Enough that a share of a fiftieth has some.
    return corpus(tmp_path_factory.mktemp("texts") / "said.jsonl", 120, 6)


def run(*args: object) -> tuple[str, str]:
    root = typer.Typer()
    root.add_typer(app, name="train")
    words = ["train", *map(str, args)]
    result = CliRunner().invoke(root, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


@pytest.mark.parametrize("command", KINDS)
def test_a_drafter_is_trained_and_told_of(
    command: str,
    model: Path,
    texts: Path,
    tmp_path: Path,
    isolated_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out"
    args = [command, "--data", texts, "--out", out, "--target", model, *FEW, "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["specrag", "train", *map(str, args)])
    text, _ = run(*args)
    kind = KINDS[command]
    assert f"{out}: {kind} for " in text
    assert "by depth, on texts held out" in text
    assert f"specrag generate --drafter {kind}:{out} ..." in text.splitlines()
    card = json.loads((out / "card.json").read_text(encoding="utf-8"))
    assert card["kind"] == kind
    assert card["vocabulary"] == 50
    assert card["command"].startswith(f"specrag train {command} --data ")
    assert set(card) >= {"machine", "commit", "data", "held_out", "seconds", "seed", "steps"}
    assert (out / "training.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "model.safetensors").is_file()

    again = json.loads(run(*args, "--json")[0])
    history = again.pop("history")
    assert {key: value for key, value in again.items() if key != "command"} == {
        key: value for key, value in card.items() if key != "command"
    }
    assert [row["step"] for row in history][:2] == [2, 4]
    assert history[-1]["held_out"] == card["held_out"]


def test_options_reach_what_is_trained(
    model: Path, texts: Path, tmp_path: Path, isolated_home: Path
) -> None:
    args = ["--data", texts, "--target", model, *FEW, "--rows", "9", "--seed", "4", "--json"]
    args += ["--optimizer", "adamw", "--max-tokens", "12", "--features", tmp_path / "f"]
    made = json.loads(
        run(
            *["eagle", "--generation", "2", "--layers", "2", "--steps", "3"],
            *["--out", tmp_path / "a", *args],
        )[0]
    )
    assert made["kind"] == "eagle"
    assert made["seed"] == 4
    assert made["data"]["texts"] == 9
    assert sum(name.startswith("accepted_") for name in made["held_out"]) == 3
    config = json.loads((tmp_path / "a" / "config.json").read_text(encoding="utf-8"))
    assert config["num_hidden_layers"] == 2
    assert (tmp_path / "f" / "features.json").is_file()
    run("medusa", "--heads", "2", "--layers", "2", "--out", tmp_path / "b", *args)
    config = json.loads((tmp_path / "b" / "config.json").read_text(encoding="utf-8"))
    assert (config["medusa_num_heads"], config["medusa_num_layers"]) == (2, 2)
    run("distill", "--layers", "3", "--out", tmp_path / "c", *args)
    slim = json.loads((tmp_path / "c" / "slim.json").read_text(encoding="utf-8"))
    assert slim["num_layers"] == 3


def test_without_matplotlib_only_the_picture_is_missing(
    model: Path,
    texts: Path,
    tmp_path: Path,
    isolated_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After hours of training nothing may be lost for a picture."""
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    out = tmp_path / "out"
    text, told = run("medusa", "--data", texts, "--out", out, "--target", model, *FEW)
    assert "medusa for" in text
    assert "specrag[eval]" in told
    assert (out / "card.json").is_file()
    assert not (out / "training.png").exists()


@pytest.mark.parametrize(
    ("args", "kind", "said"),
    [
        (["eagle", "--generation", "1"], ConfigError, "generation must be 2 or 3, got 1"),
        (["eagle", "--optimizer", "muno"], ConfigError, "did you mean 'muon'"),
        (["eagle", "--learning-rate", "0"], ConfigError, "learning_rate must be above 0"),
        (["eagle", "--epochs", "0"], ConfigError, "epochs must be above 0"),
        (["eagle", "--data", "no.jsonl"], InputError, "cannot read 'no.jsonl'"),
        (["medusa", "--data", "no.jsonl"], InputError, "cannot read 'no.jsonl'"),
        (["distill", "--layers", "9"], ModelError, "has 1 to 7 layers, got 9"),
    ],
)
def test_what_cannot_be_done_is_said(
    args: list[str],
    kind: type[SpecragError],
    said: str,
    model: Path,
    texts: Path,
    tmp_path: Path,
    isolated_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    data = [] if "--data" in args else ["--data", str(texts)]
    with pytest.raises(kind, match=said):
        run(*args, *data, "--out", "out", "--target", model)
    assert not Path("out/card.json").exists()


def test_a_card_is_shown_and_takes_what_was_measured(tmp_path: Path) -> None:
    card = {"kind": "eagle3", "target": "toy", "fingerprint": "f00", "seed": 0}
    (tmp_path / "card.json").write_text(json.dumps(card), encoding="utf-8")
    row = {"drafter": "eagle3:x", "num_prompts": 2, "num_tokens": 60, "speedup": 1.4}
    rows = [
        {**row, "category": name, "mean_acceptance_length": 1.9, "acceptance_by_depth": [0.6, 0.3]}
        for name in ("rag", "all")
    ]
    settings = {"datasets": [{"name": "questions"}], "max_tokens": 64, "quantization": "float16"}
    Report("speed", "A title", settings, {"results": rows}).save(tmp_path / "report.json")
    text, _ = run("card", tmp_path, "--report", tmp_path, "--licence", "Apache-2.0")
    assert "eagle3 for toy (f00)" in text
    assert "rag: 1.90 tokens a pass; by depth 60%, 30%" in text
    kept = json.loads((tmp_path / "card.json").read_text(encoding="utf-8"))
    assert kept["licence"] == "Apache-2.0"
    assert kept["measured"][0]["categories"]["all"]["speedup"] == 1.4
    shown, _ = run("card", tmp_path, "--json")
    assert json.loads(shown) == kept
