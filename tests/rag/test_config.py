"""Pipeline files: strict in keys and types, and plain about what is wrong."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from specrag.errors import ConfigError
from specrag.rag.build import calibration_path
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

SECTIONS: dict[str, type[Any]] = {
    "target": TargetConfig,
    "drafter": DrafterConfig,
    "retrieval": RetrievalConfig,
    "gate": GateConfig,
    "prompt": PromptConfig,
    "answer": AnswerConfig,
}
KEYS = [(name, item.name) for name, kind in SECTIONS.items() for item in dataclasses.fields(kind)]
WHOLE = """
description = "All keys"
[target]
model = "m"
dtype = "float32"
device = "cpu"
[drafter]
name = "none"
num_speculative_tokens = 3
branching = 2
[retrieval]
index = "notes"
k = 4
context_tokens = 500
[gate]
mode = "never"
draft_tokens = 9
calibration = "gate.json"
[prompt]
system = ""
with_passages = "{passages} {question}"
without_passages = "Q: {question}"
[answer]
max_tokens = 7
temperature = 0.5
top_p = 0.9
top_k = 3
repetition_penalty = 1.1
"""


def written(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text)
    return str(path)


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_pipeline(written(folder, text))
    return str(caught.value)


def test_every_section_is_known() -> None:
    fields = {item.name for item in dataclasses.fields(PipelineConfig)}
    assert fields == {*SECTIONS, "name", "description", "folder"}


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    assert load_pipeline(written(tmp_path, WHOLE)) == PipelineConfig(
        name="mine",
        description="All keys",
        target=TargetConfig("m", "float32", "cpu"),
        drafter=DrafterConfig("none", 3, 2),
        retrieval=RetrievalConfig("notes", 4, 500),
        gate=GateConfig("never", 9, "gate.json"),
        prompt=PromptConfig("", "{passages} {question}", "Q: {question}"),
        answer=AnswerConfig(7, 0.5, 0.9, 3, 1.1),
        folder=tmp_path,
    )


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    loaded = load_pipeline(written(tmp_path, ""))
    assert loaded == PipelineConfig(name="mine", folder=tmp_path)


@pytest.mark.parametrize(("section", "key"), KEYS)
def test_a_misspelt_key_is_refused_with_the_nearest(tmp_path: Path, section: str, key: str) -> None:
    misspelt = f"{key}x"
    message = refusal(tmp_path, f"[{section}]\n{misspelt} = 1")
    assert f"pipeline 'mine': unknown key '{section}.{misspelt}'" in message
    assert f"did you mean '{key}'?" in message
    assert all(item.name in message for item in dataclasses.fields(SECTIONS[section]))


@pytest.mark.parametrize("key", [*SECTIONS, "description"])
def test_a_misspelt_section_is_refused_with_the_nearest(tmp_path: Path, key: str) -> None:
    message = refusal(tmp_path, f"[{key}s]\n")
    assert f"unknown key '{key}s'; did you mean '{key}'?" in message


@pytest.mark.parametrize("key", ["name", "folder"])
def test_what_the_place_of_the_file_says_cannot_be_written_in_it(tmp_path: Path, key: str) -> None:
    assert f"unknown key '{key}'" in refusal(tmp_path, f'{key} = "x"')


def wrong_values(kind: object) -> list[str]:
    by_kind = {
        "str": ["1", "true", '["x"]'],
        "int": ['"1"', "true", "1.0", "[1]", "1979-05-27"],
        "float": ['"1"', "true", "[1.0]"],
        "bool": ['"true"', "1", "[true]"],
    }
    return by_kind[str(kind)]


TYPES = [
    (section, item.name, value)
    for section, kind in SECTIONS.items()
    for item in dataclasses.fields(kind)
    for value in wrong_values(item.type)
]


@pytest.mark.parametrize(("section", "key", "value"), TYPES)
def test_a_value_of_the_wrong_type_is_refused(
    tmp_path: Path, section: str, key: str, value: str
) -> None:
    message = refusal(tmp_path, f"[{section}]\n{key} = {value}")
    assert f"pipeline 'mine': {section}.{key} must be of type" in message
    assert "got" in message


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_that_is_no_table_is_refused(tmp_path: Path, section: str) -> None:
    assert f"{section} must be a table, got 1" in refusal(tmp_path, f"{section} = 1")
    assert f"{section} must be a table" in refusal(tmp_path, f"[[{section}]]\n")


@pytest.mark.parametrize("key", ["temperature", "top_p", "repetition_penalty"])
def test_a_whole_number_is_taken_for_a_float(tmp_path: Path, key: str) -> None:
    value = getattr(load_pipeline(written(tmp_path, f"[answer]\n{key} = 1")).answer, key)
    assert (value, type(value)) == (1.0, float)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[prompt]\nwith_passages = "{question}"', "with_passages must contain {passages}"),
        ('[prompt]\nwith_passages = "{passages}"', "with_passages must contain {question}"),
        ('[prompt]\nwithout_passages = "question"', "without_passages must contain {question}"),
        ("[retrieval]\nk = 0", "retrieval.k must be at least 1, got 0"),
        ("[retrieval]\ncontext_tokens = -5", "retrieval.context_tokens must be at least 1, got -5"),
        ("[gate]\ndraft_tokens = 0", "gate.draft_tokens must be at least 1, got 0"),
        ('[gate]\nmode = "allways"', "unknown mode 'allways'; did you mean 'always'?"),
    ],
)
def test_a_value_that_cannot_work_is_refused(tmp_path: Path, text: str, message: str) -> None:
    assert message in refusal(tmp_path, text)


@pytest.mark.parametrize("text", ["[target", "k: 3", "a = 1\na = 2", "[gate]\n[gate]"])
def test_a_file_that_is_no_toml_is_refused(tmp_path: Path, text: str) -> None:
    message = refusal(tmp_path, text)
    assert "cannot read the pipeline" in message
    assert "mine.toml" in message


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot read the pipeline"):
        load_pipeline(str(path))


def test_a_path_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no pipeline file .*none\.toml"):
        load_pipeline(str(tmp_path / "none.toml"))
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(ConfigError, match="cannot read the pipeline"):
        load_pipeline(str(tmp_path / "folder.toml"))


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no definition named 'qaa' in pipelines/; did you mean"):
        load_pipeline("qaa")


def test_a_name_is_first_looked_for_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "qa.toml").write_text('description = "my own"')
    assert load_pipeline("qa").description != "my own"
    monkeypatch.chdir(tmp_path)
    loaded = load_pipeline("qa")
    assert (loaded.description, loaded.name) == ("my own", "qa")
    assert loaded.folder == tmp_path / "pipelines"


def test_paths_in_a_file_are_relative_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    written(tmp_path / "sub", '[gate]\ncalibration = "gates/mine.json"')
    monkeypatch.chdir(tmp_path)
    config = load_pipeline("sub/mine.toml")
    assert calibration_path(config) == Path("sub/gates/mine.json")
    assert calibration_path(PipelineConfig()) is None
