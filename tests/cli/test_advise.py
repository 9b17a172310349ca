from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from specrag.cli.advise import _MODEL
from specrag.cli.main import build_app
from specrag.decoding.budget import PassCosts
from specrag.errors import ConfigError, InputError
from specrag.evaluation import cost_table
from specrag.evaluation.cost_table import CostTable
from specrag.evaluation.uses import USES
from specrag.models.embedded import DEFAULT_TARGET

PAIRS = "1:1.0,2:1.75,4:1.94,8:1.94,16:1.98,32:2.27"


def run(*args: str) -> tuple[str, str]:
    words = ["advise", *args]
    result = CliRunner().invoke(build_app(words), words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def bench_file(folder: Path) -> Path:
    figures = {
        "category": "summarization_of_long_documents",
        "num_drafts": 100,
        "num_accepted_tokens_per_pos": [80, 60, 40, 30],
    }
    results = [
        {**figures, "drafter": "none"},
        {**figures, "drafter": "suffix", "speedup": 1.53, "mean_acceptance_length": 2.1},
        {**figures, "drafter": "prompt_lookup"},
    ]
    path = folder / "bench.json"
    path.write_text(json.dumps({"machine": {}, "results": results}))
    return path


def test_the_tables_fit_a_screen_and_line_up(tmp_path: Path) -> None:
    text, _ = run(
        "--costs", PAIRS, "--alpha", "0.65", "--max-gamma", "64",
        "--from-json", str(bench_file(tmp_path)),
    )  # fmt: skip
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    heads = [index for index, line in enumerate(lines) if line.startswith("  alpha ")]
    assert len(heads) == 2
    for head in heads:
        table = list(itertools.takewhile(lambda line: line.startswith("  "), lines[head:]))
        assert len(table) == 1 + 7 + 2
        cells = [line[26:] for line in table]
        starts = {line[25] for line in table}
        assert starts == {" "}  # a long label is cut off
        # Right-aligned cells of one width: rows with as many cells end in the same column.
        for count in {len(text.split()) for text in cells[1:]}:
            assert len({len(text) for text in cells[1:] if len(text.split()) == count}) == 1
        assert len(cells[0]) == max(map(len, cells))
        assert all(text[7] != " " for text in cells)
        assert not any(name in cells[0] for name in ("bestm", "bestb"))


def test_the_figures_on_the_screen_are_those_of_the_json() -> None:
    text, _ = run("--costs", PAIRS)
    report = json.loads(run("--costs", PAIRS, "--json")[0])
    lines = [line.split() for line in text.splitlines()]
    for row in report["rows"]:
        assert [row["label"], *(f"{value:.2f}" for value in row["expected_tokens"])] in lines
        speeds = [f"{value:.2f}x" for value in row["speedup"]]
        best = [str(row["best_gamma"] or "none"), f"{row['best_speedup']:.2f}x"]
        assert [row["label"], *speeds, *best] in lines
    batches = [str(row["batch_size"]) for row in report["batches"]]
    assert ["rows", *batches] in lines
    assert "2.77" in text
    assert f"it pays above alpha {report['break_even_alpha']:.2f}" in text


def test_all_uses_are_advised_on_or_the_one_that_is_named() -> None:
    text = run("--costs", "flat")[0]
    assert all(f"\n{use}: drafter " in text for use in USES)
    text = run("--costs", "flat", "--use", "long-text")[0]
    assert [use for use in USES if f"\n{use}: drafter " in text] == ["long_text"]


def test_what_does_not_pay_is_said_plainly() -> None:
    text = run("--costs", "1:1,2:2", "--alpha", "0.9")[0]
    assert "Speculation does not pay at alpha 0.90" in text
    assert "not even certain acceptance" in text
    assert "never" in text


def test_acceptance_is_read_from_a_file(tmp_path: Path) -> None:
    text, _ = run("--costs", "flat", "--from-json", str(bench_file(tmp_path)))
    assert "0.80 0.75 0.67 0.75" in text
    assert "from 100 num_drafts" in text
    assert "1.53x" in text
    assert "(measured)" in text
    assert "few" not in text
    report = json.loads(
        run("--costs", "flat", "--from-json", str(bench_file(tmp_path)), "--json")[0]
    )
    assert [row["label"].split(",")[0] for row in report["rows"][-2:]] == [
        "suffix",
        "prompt_lookup",
    ]
    assert report["assumptions"]["alpha"] == pytest.approx(210 / 280)


def test_few_drafts_and_passes_without_a_draft_are_pointed_out(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    counts = {"num_drafts": 6, "num_passes": 24, "num_accepted_tokens_per_pos": [6, 6, 5]}
    path.write_text(json.dumps({"drafter": "suffix", "speculation": counts}))
    text = " ".join(run("--costs", "flat", "--from-json", str(path))[0].split())
    assert "from 6 num_drafts (few: measure more)" in text
    assert "25% of passes had a draft" in text
    assert "at best measured" not in text


def test_costs_are_measured_for_the_model_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def measured(model: str, *, dtype: str, on_load: Any) -> CostTable:
        asked.append((model, dtype))
        on_load()
        return CostTable(PassCosts((1, 2), (1.0, 1.5)), "measured here")

    monkeypatch.setattr(cost_table, "measured_costs", measured)
    text, progress = run("--use", "code")
    assert "loading smollm2-135m-instruct" in progress
    assert "measured here" in text
    run("--model", "other", "--dtype", "float32", "--json")
    assert asked == [(DEFAULT_TARGET, "auto"), ("other", "float32")]
    assert _MODEL == DEFAULT_TARGET


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "speedup.png"
    text, progress = run("--costs", PAIRS, "--plot", str(path), "--json")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert str(path) in progress
    json.loads(text)


@pytest.mark.parametrize(
    ("args", "kind", "message"),
    [
        (["--use", "cod"], ConfigError, "did you mean 'code'"),
        (["--costs", "mesured"], ConfigError, "no such pass costs"),
        (["--from-json", "gone.json"], InputError, "cannot read 'gone.json'"),
        (["--plot", "a.gif"], ConfigError, "cannot draw"),
    ],
)
def test_mistakes_are_found_before_a_model_is_loaded(
    args: list[str], kind: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        cost_table, "measured_costs", lambda *_, **__: pytest.fail("a model was loaded")
    )
    with pytest.raises(kind, match=message):
        run(*args)


@pytest.mark.parametrize("args", [["--alpha", "1.1"], ["--epsilon", "-1"], ["--batch-size", "0"]])
def test_values_out_of_range_are_a_usage_error(args: list[str]) -> None:
    words = ["advise", *args]
    result = CliRunner().invoke(build_app(words), words)
    assert result.exit_code == 2
    assert "Invalid value" in result.stderr
