"""What is written is read back as it was meant, whatever the texts in it are."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from specrag.errors import ConfigError
from specrag.evaluation.reports.report import Report
from specrag.evaluation.tuning.pipeline_file import (
    COMMENTS,
    check_target,
    pipeline_text,
    tuned,
    write_pipeline,
)
from specrag.rag.config import (
    AnswerConfig,
    DrafterConfig,
    GateConfig,
    PipelineConfig,
    PromptConfig,
    RetrievalConfig,
    TargetConfig,
    load_pipeline,
)

ADVICE: dict[str, Any] = {
    "drafter": "suffix+draft:m",
    "num_speculative_tokens": 6,
    "branching": 2,
    "policy": "fixed",
    "reasons": ["Speculation pays: it is 1.50x (1.40 to 1.60) as fast."],
}


def report(command: str = "specrag tune", **advice: Any) -> Report:
    row = {"tokens_per_second": 45.6, "speedup": 1.5, "mean_acceptance_length": 2.1}
    figures = {
        "costs": {"num_nodes": [1, 8], "relative": [1.0, 1.3], "ms": [20.0, 26.0]},
        "plain": {"tokens_per_second": 30.4},
        "finals": [{**ADVICE, **row}],
        "advice": {**ADVICE, **advice},
    }
    configuration = {"prompts": "mine.txt", "num_prompts": 7}
    return Report("tuning", "A title", configuration, figures, command=command)


def test_everything_but_the_drafter_is_carried_over(tmp_path: Path) -> None:
    config = PipelineConfig(
        name="old",
        description='For "chat" \\ work',
        target=TargetConfig("gpt-x", "float32", "cpu", "none", 12),
        drafter=DrafterConfig(min_acceptance=0.25, strict=True),
        retrieval=RetrievalConfig("handbook", 3, 500),
        gate=GateConfig("always", 8),
        prompt=PromptConfig("Be brief.", "{passages}\n{question}", "Q: {question}"),
        answer=AnswerConfig(99, 0.5, 0.9, 7, 1.1),
        folder=tmp_path,
    )
    path = tmp_path / "new.toml"
    write_pipeline(config, report(), path)
    assert load_pipeline(str(path)) == dataclasses.replace(
        config,
        name="new",
        drafter=DrafterConfig("suffix+draft:m", 6, 2, "fixed", 0.25, True),
    )
    assert list(tmp_path.iterdir()) == [path]


# Lone surrogates are no text; all else is.
_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@settings(deadline=None, max_examples=100)
@given(_TEXT, _TEXT, _TEXT, _TEXT)
@example("\n", 'three """ marks', "\r\n\t\x7f\x00\x1f", "back\\slash\\\n\n")
@example('"', "'''", "\\", "\u2028\x85\ufeff")
def test_any_text_is_read_back(description: str, system: str, prompt: str, command: str) -> None:
    config = PipelineConfig(
        description=description,
        prompt=PromptConfig(system, f"{{passages}}{prompt}{{question}}", f"{prompt}{{question}}"),
    )
    path = Path("new.toml")
    text = pipeline_text(config, report(command, reasons=[prompt]), path)
    made = tuned(config, ADVICE, path)
    read = tomllib.loads(text)
    if description:
        assert read["description"] == description
    assert read["prompt"] == dataclasses.asdict(made.prompt)
    assert read["drafter"] == dataclasses.asdict(made.drafter)


def test_every_key_stands_there_with_a_comment() -> None:
    text = pipeline_text(PipelineConfig(), report(), Path("new.toml"))
    read = tomllib.loads(text)
    config = dataclasses.asdict(PipelineConfig())
    for section, table in read.items():
        if isinstance(table, dict):
            assert table.keys() == config[section].keys()
    documented = {"prompt.with_passages", "prompt.without_passages"}
    keys = {
        f"{section}.{key}"
        for section, table in config.items()
        if isinstance(table, dict)
        for key in table
    }
    assert keys == set(COMMENTS) | documented


def test_the_measured_figures_stand_on_top() -> None:
    text = pipeline_text(PipelineConfig(), report(), Path("new.toml"))
    head = text.partition("description")[0]
    assert all(line.startswith("#") for line in head.splitlines())
    assert max(map(len, head.splitlines())) <= 100
    joined = " ".join(line.strip("# ") for line in head.splitlines())
    for part in (
        "Written by `specrag tune`",
        "7 prompts of mine.txt",
        "1.50x (1.40 to 1.60)",
        "Plain decoding: 30.4 tokens/s.",
        "45.6 tokens/s, 1.50x, mean acceptance length 2.10",
        "1: 1.00, 8: 1.30",
    ):
        assert part in joined


def test_paths_stay_right_in_another_folder(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new" / "deep"
    old.mkdir()
    new.mkdir(parents=True)
    config = PipelineConfig(
        target=TargetConfig("./model"),
        retrieval=RetrievalConfig("recipe.toml"),
        folder=old,
    )
    write_pipeline(config, report(), new / "a.toml")
    read = load_pipeline(str(new / "a.toml"))
    assert (read.folder / read.target.model).resolve() == old / "model"
    assert (read.folder / read.retrieval.index).resolve() == old / "recipe.toml"
    write_pipeline(config, report(), old / "a.toml")
    read = load_pipeline(str(old / "a.toml"))
    assert (read.target.model, read.retrieval.index) == ("./model", "./recipe.toml")


def test_names_are_no_paths() -> None:
    config = PipelineConfig(target=TargetConfig("org/model"), folder=Path("/elsewhere"))
    made = tuned(config, ADVICE, Path("new.toml"))
    assert (made.target.model, made.retrieval.index) == ("org/model", "handbook")


def test_a_calibration_of_another_drafter_is_left_out_and_how_to_fit_it_is_said() -> None:
    config = PipelineConfig(gate=GateConfig(calibration="old.gate.json"))
    text = pipeline_text(config, report(), Path("new.toml"))
    assert tomllib.loads(text)["gate"]["calibration"] == ""
    command = "specrag gate calibrate --pipeline new.toml"
    assert command in text
    assert command not in pipeline_text(PipelineConfig(), report(), Path("new.toml"))


def test_a_place_that_will_not_do_is_refused_at_once(tmp_path: Path) -> None:
    check_target(tmp_path / "new.toml")
    (tmp_path / "old.toml").touch()
    check_target(tmp_path / "old.toml", force=True)
    (tmp_path / "folder.toml").mkdir()
    for name, words in {
        "new.txt": r"ends with \.toml",
        "none/new.toml": "there is no folder",
        "old.toml": "exists",
        "folder.toml": "exists",
    }.items():
        with pytest.raises(ConfigError, match=words):
            check_target(tmp_path / name)
    with pytest.raises(ConfigError, match="exists"):
        check_target(tmp_path / "folder.toml", force=True)


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(KeyError):
        write_pipeline(PipelineConfig(), dataclasses.replace(report(), figures={}), path)
    assert path.read_text(encoding="utf-8") == "old"
