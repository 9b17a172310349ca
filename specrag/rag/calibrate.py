"""Calibrates the gate of a pipeline on labelled questions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from specrag.errors import ConfigError, InputError
from specrag.gate.calibration import Calibration, LabelledSignals, fit
from specrag.gate.rules import rule_for
from specrag.gate.signals import LookupSignals
from specrag.home import find_definition
from specrag.rag.build import SpecRAG, calibration_path
from specrag.rag.config import PipelineConfig

LABELS_NAME = "calibration.jsonl"


@dataclass(frozen=True, slots=True)
class LabelledQuestion:
    """One line of a label file.

    Attributes:
        question: In plain words.
        retrieve: Whether the documents are needed to answer it.
    """

    question: str
    retrieve: bool


def calibrate(
    rag: SpecRAG, questions: Sequence[LabelledQuestion], *, progress: bool = False
) -> Calibration:
    """Fits the gate of a pipeline to labelled questions; the pipeline itself is not changed.

    Args:
        rag: A pipeline with an index.
        questions: At least ten of either kind.
        progress: Whether to show a progress bar on standard error.

    Raises:
        ConfigError: The pipeline has no index, so its gate has nothing to decide.
        GateError: There are too few questions of a kind.
    """
    if rag.retriever is None:
        raise ConfigError(f"the pipeline {rag.name!r} has no index, so there is no gate to fit")
    rows = []
    # What a rule decides never reaches the gate, so it should not shape its thresholds.
    open_questions = [item for item in questions if rule_for(item.question) is None]
    for item in tqdm(open_questions, "measuring", disable=not progress):
        signals = rag.signals_of(item.question)
        lookup = LookupSignals.of(rag.retriever.retrieve(item.question, 1))
        rows.append(LabelledSignals(signals, item.retrieve, lookup.top_score))
    return fit(rows, rag.fingerprints())


def load_labels(path: Path) -> list[LabelledQuestion]:
    """Reads labelled questions.

    Args:
        path: A file with one JSON object a line: ``question``, a text, and ``retrieve``, a truth
            value; other keys are for people, and blank lines are passed over.

    Raises:
        InputError: It cannot be read, or a line is not such an object; the message names the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read the labelled questions in {str(path)!r}: {error}",
            hint='give a file of lines such as {"question": "...", "retrieve": true}',
        ) from error
    return list(_labels(text, path))


def default_labels(config: PipelineConfig) -> Path:
    """Returns where the labelled questions of a pipeline's index are kept: beside its recipe.

    Args:
        config: The pipeline's definition.

    Raises:
        ConfigError: There is no such recipe, or the pipeline has no index.
    """
    index = config.retrieval.index
    if not index:
        raise ConfigError(f"the pipeline {config.name!r} has no index, so there is no gate to fit")
    if index.endswith(".toml") or index.startswith(("./", "../")):
        return (config.folder / index).parent / LABELS_NAME
    return find_definition("indexes", index, f"{index}/recipe.toml").parent / LABELS_NAME


def default_output(config: PipelineConfig) -> Path:
    """Returns where the calibration of a pipeline is kept, also when it names no file yet.

    Args:
        config: The pipeline's definition.
    """
    return calibration_path(config) or config.folder / f"{config.name}.gate.json"


def _labels(text: str, path: Path) -> Iterator[LabelledQuestion]:
    # Not splitlines: it would also cut at separators that may stand inside a JSON text.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield _label(json.loads(line))
        except ValueError as error:
            raise InputError(
                f"{path}, line {number}: {error}",
                hint='a line looks like {"question": "...", "retrieve": true}',
            ) from error


def _label(content: Any) -> LabelledQuestion:
    if not isinstance(content, dict):
        raise ValueError(f"expected an object, got {content!r}")
    question, retrieve = content.get("question"), content.get("retrieve")
    if not isinstance(question, str) or not question.strip():
        raise ValueError(f"question must be a text that is not blank, got {question!r}")
    if not isinstance(retrieve, bool):
        raise ValueError(f"retrieve must be true or false, got {retrieve!r}")
    return LabelledQuestion(question, retrieve)
