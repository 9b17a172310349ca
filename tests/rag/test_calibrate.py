"""Labels are read strictly, and what a rule decides does not shape the thresholds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from specrag.errors import ConfigError, GateError, InputError
from specrag.gate.calibration import fingerprint_of
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.tokenizer import Tokenizer
from specrag.rag.build import SpecRAG
from specrag.rag.calibrate import (
    LabelledQuestion,
    calibrate,
    default_labels,
    default_output,
    load_labels,
)
from specrag.rag.config import GateConfig, PipelineConfig, RetrievalConfig
from specrag.retrieval.retriever import IndexRetriever, Retriever

MakeRag = Callable[[Retriever | None], SpecRAG]


@pytest.fixture
def make_rag(target: HuggingFaceTarget, tokenizer: Tokenizer) -> MakeRag:
    config = PipelineConfig(gate=GateConfig(draft_tokens=2))
    return lambda index: SpecRAG(
        target=target, tokenizer=tokenizer, drafter="none", index=index, config=config
    )


def questions(num_each: int) -> list[LabelledQuestion]:
    needed = [LabelledQuestion(f"When did ship {n} leave?", True) for n in range(num_each)]
    return needed + [LabelledQuestion(f"What is {n} + {n}?", False) for n in range(num_each)]


def test_a_pipeline_is_calibrated_for_what_it_is(
    make_rag: MakeRag, retriever: IndexRetriever
) -> None:
    rag = make_rag(retriever)
    gate = rag.gate
    calibration = calibrate(rag, questions(10))

    assert calibration.num_labels == 20
    assert calibration.fitted_on == rag.fingerprints()
    assert calibration.fingerprint == fingerprint_of(rag.fingerprints())
    assert calibrate(rag, questions(10)) == calibration
    assert rag.gate is gate


def test_greetings_do_not_count(make_rag: MakeRag, retriever: IndexRetriever) -> None:
    rag = make_rag(retriever)
    greetings = [LabelledQuestion("Hello!", False)] * 5
    assert calibrate(rag, [*questions(10), *greetings]) == calibrate(rag, questions(10))
    with pytest.raises(GateError, match="got 10 that need documents and 9 that need none"):
        calibrate(rag, [*questions(10)[:19], *greetings])


def test_without_an_index_there_is_nothing_to_fit(make_rag: MakeRag) -> None:
    with pytest.raises(ConfigError, match="has no index"):
        calibrate(make_rag(None), questions(10))


def test_labels_are_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    rows = [
        {"question": "你好 means what?", "retrieve": True, "kind": "other keys are for people"},
        {"question": "a line\u2028separator", "retrieve": False},
    ]
    text = "\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text(f"{text}\r\n", encoding="utf-8")
    expected = [LabelledQuestion(str(row["question"]), row["retrieve"] is True) for row in rows]
    assert load_labels(path) == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: "),
        ("[]", "line 2: expected an object, got []"),
        ('{"retrieve": true}', "line 2: question must be a text that is not blank, got None"),
        ('{"question": " ", "retrieve": true}', "line 2: question must be a text"),
        ('{"question": 1, "retrieve": true}', "line 2: question must be a text"),
        ('{"question": "q"}', "line 2: retrieve must be true or false, got None"),
        ('{"question": "q", "retrieve": 1}', "line 2: retrieve must be true or false, got 1"),
    ],
)
def test_a_bad_line_is_refused_by_its_number(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(f'{{"question": "q", "retrieve": true}}\n{line}\n')
    with pytest.raises(InputError) as caught:
        load_labels(path)
    assert f"{path}, {message}" in caught.value.message
    assert caught.value.hint


def test_labels_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "none.jsonl", tmp_path, tmp_path / "binary.jsonl"):
        with pytest.raises(InputError, match="cannot read the labelled questions"):
            load_labels(path)


def test_labels_lie_beside_the_recipe(tmp_path: Path) -> None:
    named = default_labels(PipelineConfig())
    assert named.is_file()
    assert named.parts[-2:] == ("handbook", "calibration.jsonl")
    by_path = PipelineConfig(retrieval=RetrievalConfig(index="mine/recipe.toml"), folder=tmp_path)
    assert default_labels(by_path) == tmp_path / "mine" / "calibration.jsonl"
    with pytest.raises(ConfigError, match="no definition named"):
        default_labels(PipelineConfig(retrieval=RetrievalConfig(index="nowhere")))
    with pytest.raises(ConfigError, match="has no index, so there is no gate to fit"):
        default_labels(PipelineConfig(retrieval=RetrievalConfig(index="")))


def test_a_calibration_lies_beside_the_pipeline(tmp_path: Path) -> None:
    assert default_output(PipelineConfig(name="p", folder=tmp_path)) == tmp_path / "p.gate.json"
    named = PipelineConfig(gate=GateConfig(calibration="g.json"), folder=tmp_path)
    assert default_output(named) == tmp_path / "g.json"
