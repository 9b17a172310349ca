"""The shipped pipeline on the handbook: what is looked up, and whether the citations hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specrag.decoding.sampling import SamplingParams
from specrag.home import find_definition
from specrag.rag.answer import Answer
from specrag.rag.build import SpecRAG
from specrag.retrieval.retriever import IndexRetriever

pytestmark = [pytest.mark.slow, pytest.mark.embedded]

NEEDS_NONE = ["Hi", "What is 12 + 7?", "Write a haiku about rain"]
MORE = [
    "Hello, how are you?",
    "Write a poem about the sea",
    "What's 5 times 6?",
    "Tell me a joke",
    "What is the capital of Italy?",
]


@pytest.fixture(scope="module")
def rag(embedded_target_path: Path, embedded_encoder_path: Path) -> SpecRAG:
    assert embedded_target_path.is_dir()
    assert embedded_encoder_path.is_dir()
    return SpecRAG.load("qa")


@pytest.mark.parametrize("question", NEEDS_NONE)
def test_what_needs_no_documents_is_not_looked_up(rag: SpecRAG, question: str) -> None:
    assert isinstance(rag.retriever, IndexRetriever)
    before = rag.retriever.index.num_searches
    answer = rag.ask(question, params=SamplingParams(max_tokens=24))
    assert answer.usage.lookups == 0, answer.gate.reason
    assert rag.retriever.index.num_searches == before


def test_most_of_what_needs_no_documents_is_not_looked_up(rag: SpecRAG) -> None:
    answers = [rag.ask(question, params=SamplingParams(max_tokens=24)) for question in MORE]
    assert sum(answer.usage.lookups == 0 for answer in answers) >= len(MORE) - 1
    assert not any(answer.citations for answer in answers)


def test_the_handbook_is_asked_and_the_citations_hold_the_answers(rag: SpecRAG) -> None:
    path = find_definition("indexes", "handbook", "handbook/questions.jsonl")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    answers = [rag.ask(row["question"]) for row in rows]
    looked_up = [answer.usage.lookups == 1 for answer in answers]
    held = [_holds(rag, answer, row["answers"]) for answer, row in zip(answers, rows, strict=True)]
    for row, answer, lookup, hold in zip(rows, answers, looked_up, held, strict=True):
        print(f"lookup {lookup:d} held {hold:d}  {row['question']} -> {answer.text[:100]!r}")
    print(f"looked up {sum(looked_up)}, held {sum(held)} of {len(rows)}")
    assert sum(looked_up) >= 0.9 * len(rows)
    assert sum(held) >= 0.8 * len(rows)


def _holds(rag: SpecRAG, answer: Answer, wanted: list[str]) -> bool:
    """Whether a cited passage holds one of the wanted texts."""
    assert isinstance(rag.retriever, IndexRetriever)
    passages = rag.retriever.index.get([citation.passage for citation in answer.citations])
    texts = [passage.text.lower() for passage in passages]
    return any(text.lower() in held for held in texts for text in wanted)
