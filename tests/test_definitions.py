"""Every definition loads, says what its keys mean, and names things that exist."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from specrag.drafters.catalog import parse
from specrag.errors import ConfigError, GateError
from specrag.gate.calibration import Calibration
from specrag.gate.policy import CalibratedGate
from specrag.models.devices import DTYPES
from specrag.models.embedded import EMBEDDED
from specrag.models.tiny import tiny_target, tiny_tokenizer
from specrag.rag.build import (
    SpecRAG,
    calibration_path,
    sampling_params,
    speculation_config,
)
from specrag.rag.config import GateConfig, PipelineConfig, load_pipeline
from specrag.rag.named_indexes import named_recipe
from specrag.retrieval.recipe import IndexRecipe, load_recipe
from specrag.retrieval.sources.catalog import load_folder

ROOT = Path(__file__).resolve().parent.parent
PIPELINES = sorted((ROOT / "pipelines").glob("*.toml"))
RECIPES = sorted((ROOT / "indexes").glob("*/recipe.toml"))
every_pipeline = pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.stem)
every_index = pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.parent.name)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def documented(kind: type[Any]) -> set[str]:
    """Names of the attributes that the docstring of a dataclass explains."""
    return set(re.findall(r"^ +(\w+): \S", inspect.getdoc(kind) or "", re.MULTILINE))


def unexplained(text: str, kind: type[Any] = PipelineConfig) -> list[str]:
    """Keys of a file with neither a comment on their line nor a place in the docstring."""
    commented = set(re.findall(r"^(\w+) *=.*#", text, re.MULTILINE))
    return list(_unexplained(tomllib.loads(text), kind, commented))


def _unexplained(content: Mapping[str, Any], kind: type[Any], commented: set[str]) -> Iterator[str]:
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _unexplained(value, get_type_hints(kind)[key], commented)
        elif key not in commented | documented(kind):
            yield key


def missing_answers(question: Mapping[str, Any], texts: Mapping[str, str]) -> list[str]:
    """Answers of a question that do not stand in its document."""
    text = " ".join(texts[question["document"]].split())
    return [answer for answer in question["answers"] if " ".join(answer.split()) not in text]


def corpus_of(recipe: IndexRecipe) -> dict[str, str]:
    documents = load_folder(recipe.corpus, recipe.patterns).documents
    return {document.id: document.text for document in documents}


def test_the_definitions_are_found() -> None:
    assert "qa" in [path.stem for path in PIPELINES]
    assert "handbook" in [path.parent.name for path in RECIPES]


@every_pipeline
def test_a_pipeline_loads_and_its_values_work(path: Path) -> None:
    config = load_pipeline(str(path))
    assert config.description
    assert config.target.dtype in ("auto", *DTYPES)
    speculation_config(config)
    sampling_params(config)
    parse(config.drafter.name)
    if config.retrieval.index:
        assert named_recipe(config.retrieval.index).corpus.exists()
    else:
        assert config.gate == GateConfig(mode="never")


@pytest.fixture(scope="module")
def toy_models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Folders of saved toy models, which stand for those of a definition."""
    folder = tmp_path_factory.mktemp("toys")
    for seed in range(2):
        place = folder / str(seed)
        tiny_target(seed, vocab_size=80, max_context=2048).model.save_pretrained(place)
        tiny_tokenizer(80).backend.save_pretrained(place)
    return sorted(folder.iterdir())


@every_pipeline
def test_a_pipeline_answers_with_toys_for_its_models(
    path: Path,
    toy_models: list[Path],
    tiny_rag: SpecRAG,
    tmp_path: Path,
    isolated_home: Path,
) -> None:
    text = path.read_text(encoding="utf-8")
    config = load_pipeline(str(path))
    drafts = re.findall(r"draft:([^+>,]+)", config.drafter.name)
    # A draft model's name may begin as the target's does.
    for name, place in zip([*drafts, config.target.model], toy_models[::-1], strict=False):
        text = text.replace(name, str(place))
    text = re.sub("max_tokens = .*", "max_tokens = 8", text)
    text = re.sub("calibration = .*", "", text)
    copy = tmp_path / path.name
    copy.write_text(text, encoding="utf-8")
    index = tiny_rag.retriever if config.retrieval.index else None
    rag = SpecRAG.load(str(copy), index=index)
    answer = rag.ask("Where do the whales live?")
    assert answer.usage.completion_tokens > 0
    assert (answer.pipeline, answer.gate.retrieve) == (path.stem, index is not None)
    assert answer.drafter.count("draft:") == len(drafts)
    # A combination sees itself to what its members cost, and states none.
    counted = getattr(rag.generator.drafter, "_members", rag.generator.drafter)
    assert (counted.levels != ()) == bool(drafts)


def test_a_definition_with_a_draft_model_is_among_those_that_are_tried() -> None:
    names = [load_pipeline(str(path)).drafter.name for path in PIPELINES]
    assert any("+draft:" in name for name in names)
    assert any(">draft:" in name for name in names)


@pytest.mark.embedded
@every_pipeline
def test_a_pipeline_of_embedded_models_answers(
    path: Path, embedded_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECRAG_HOME", str(embedded_home))
    config = load_pipeline(str(path))
    if config.target.model not in EMBEDDED:
        pytest.skip("its models are on the hub")
    rag = SpecRAG.load(str(path))
    answer = rag.ask("What is two plus two?", params=replace(rag.params, max_tokens=8))
    assert answer.text.strip()


@every_pipeline
def test_the_calibration_of_a_pipeline_loads(path: Path) -> None:
    calibration = calibration_path(load_pipeline(str(path)))
    assert calibration is None or Calibration.load(calibration).num_labels >= 20


def test_a_calibration_that_does_not_exist_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('[gate]\ncalibration = "none.json"')
    calibration = calibration_path(load_pipeline(str(path)))
    assert calibration is not None
    with pytest.raises(GateError, match=r"none\.json"):
        Calibration.load(calibration)


@every_pipeline
def test_every_key_of_a_pipeline_is_explained(path: Path) -> None:
    assert unexplained(path.read_text(encoding="utf-8")) == []


def test_every_field_of_a_pipeline_is_documented() -> None:
    kinds = [PipelineConfig, *(k for k in get_type_hints(PipelineConfig).values())]
    sections = [kind for kind in kinds if dataclasses.is_dataclass(kind)]
    assert len(sections) == 7
    for kind in sections[1:]:
        assert documented(kind) >= {item.name for item in dataclasses.fields(kind)}  # type: ignore[arg-type]


def test_a_key_that_nothing_explains_is_noticed() -> None:
    @dataclasses.dataclass
    class Config:
        """One section.

        Attributes:
            known: Explained here.
        """

        known: int
        commented: int
        bare: int

    assert unexplained("known = 1\ncommented = 2  # why\nbare = 3", Config) == ["bare"]


@every_index
def test_a_recipe_loads_and_its_corpus_has_documents(path: Path) -> None:
    recipe = load_recipe(path)
    report = load_folder(recipe.corpus, recipe.patterns)
    assert recipe.name == path.parent.name
    assert recipe.description
    assert report.documents
    assert report.failures == ()


@every_index
def test_the_answer_of_each_question_stands_in_its_document(path: Path) -> None:
    texts = corpus_of(load_recipe(path))
    questions = lines_of(path.parent / "questions.jsonl")
    assert questions
    assert [row for row in questions if not row["answers"] or row["document"] not in texts] == []
    missing = {row["question"]: missing_answers(row, texts) for row in questions}
    assert {question: answers for question, answers in missing.items() if answers} == {}


def test_an_answer_that_stands_nowhere_is_noticed() -> None:
    texts = {"a.md": "The gate\nreads signals."}
    question = {"document": "a.md", "answers": ["gate reads", "gate writes"]}
    assert missing_answers(question, texts) == ["gate writes"]


@every_index
def test_calibration_and_evaluation_share_no_question(path: Path) -> None:
    def normal(rows: list[dict[str, Any]]) -> list[str]:
        return [" ".join(re.findall(r"\w+", row["question"].lower())) for row in rows]

    fitted = normal(lines_of(path.parent / "calibration.jsonl"))
    asked = normal(lines_of(path.parent / "questions.jsonl"))
    assert len(set(fitted)) == len(fitted)
    assert len(set(asked)) == len(asked)
    assert set(fitted) & set(asked) == set()


@every_index
def test_a_calibration_has_enough_questions_of_both_kinds(path: Path) -> None:
    rows = lines_of(path.parent / "calibration.jsonl")
    assert all(type(row["retrieve"]) is bool and row["question"].strip() for row in rows)
    kinds = [row["retrieve"] for row in rows]
    assert min(kinds.count(True), kinds.count(False)) >= 10


def test_definitions_hold_no_code() -> None:
    """Data only: no module, and no value that looks like the path of one."""
    for folder in ("pipelines", "indexes"):
        assert list((ROOT / folder).rglob("*.py")) == []
    values = [
        node.value
        for path in (*PIPELINES, *RECIPES)
        for node in ast.walk(ast.parse(repr(tomllib.loads(path.read_text(encoding="utf-8")))))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert values
    assert [value for value in values if re.fullmatch(r"\w+(\.\w+)+:\w+", value)] == []


def test_a_pipeline_that_does_not_load_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[retrieval]\nindx = 1")
    with pytest.raises(ConfigError, match="did you mean 'index'"):
        load_pipeline(str(tmp_path / "bad.toml"))


@pytest.mark.embedded
@every_pipeline
def test_a_shipped_calibration_fits_what_is_shipped(
    path: Path, embedded_target_path: Path, embedded_encoder_path: Path
) -> None:
    # Fails when handbook, prompt or drafter changed: then run `specrag gate calibrate` again.
    assert embedded_target_path.is_dir()
    assert embedded_encoder_path.is_dir()
    if calibration_path(load_pipeline(str(path))) is None:
        pytest.skip("the pipeline ships no calibration")
    rag = SpecRAG.load(str(path))
    assert isinstance(rag.gate, CalibratedGate), rag.ask("?").gate.reason
