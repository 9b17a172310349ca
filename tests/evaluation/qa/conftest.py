"""A small set of questions over the four documents of the pipeline's tests."""

from __future__ import annotations

import pytest

from specrag.evaluation.datasets.item import EvalDataset, EvalItem
from tests.rag.conftest import (
    corpus,
    gate_of,
    make_pipeline,
    retriever,
    target,
    tokenizer,
)

__all__ = ["corpus", "gate_of", "make_pipeline", "retriever", "target", "tokenizer"]

_QUESTIONS = (
    ("How long is bread baked?", "forty minutes", "bread.md"),
    ("What does the gate read?", "the draft", "gate.md"),
    ("When did the ship leave?", "at dawn", "ships.md"),
    ("What does a draft tree merge?", "proposals", "tree.md"),
    ("What did the ship carry?", "grain", "ships.md"),
    ("What does the gate decide?", "documents", "gate.md"),
    ("hello", "hello", "tree.md"),
)


@pytest.fixture(scope="session")
def dataset() -> EvalDataset:
    """Seven questions in two categories; one of them is a greeting, which a rule decides."""
    items = tuple(
        EvalItem(f"q{n}", question, (answer,), "even" if n % 2 else "odd", (document,))
        for n, (question, answer, document) in enumerate(_QUESTIONS, 1)
    )
    return EvalDataset("seven", "plain", "seven", "5e7e", "short_answer", items)
