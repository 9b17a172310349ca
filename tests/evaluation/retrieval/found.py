"""Retrievers that find what they are told to, and sets to ask them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specrag.evaluation.datasets.item import EvalDataset, EvalItem
from specrag.retrieval.document import Document, Passage, ScoredPassage
from specrag.retrieval.filters import Filter
from specrag.retrieval.retriever import Retriever


class Told(Retriever):
    """Finds passages of the documents that are listed for a question, in this order.

    Args:
        rankings: A document for each passage, by question; best first.
        name: Of the index.
    """

    def __init__(self, rankings: Mapping[str, Sequence[str]], name: str = "told") -> None:
        self.rankings = rankings
        self.asked: list[tuple[str, int]] = []
        self.warm = False
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    @property
    def index_version(self) -> str:
        return "1"

    @property
    def fingerprint(self) -> str:
        return f"told:{self._name}"

    @property
    def num_lookups(self) -> int:
        return len(self.asked)

    def warm_up(self) -> None:
        self.warm = True

    def retrieve(self, query: str, k: int, where: Filter | None = None) -> list[ScoredPassage]:
        assert self.warm, "a lookup was timed that loads the models"
        self.asked.append((query, k))
        return [
            ScoredPassage(Passage(number, document, "x", 0, 1), 1.0 - number / 1000)
            for number, document in enumerate(self.rankings[query][:k])
        ]


def dataset(relevant: Mapping[str, Mapping[str, float]]) -> EvalDataset:
    """Returns a set of questions, each with the grades of its relevant documents."""
    items = tuple(
        EvalItem(f"id-{question}", question, documents=tuple(grades), grades=grades)
        for question, grades in relevant.items()
    )
    names = dict.fromkeys(name for grades in relevant.values() for name in grades)
    documents = tuple(Document(name, f"Text of {name}.", "told") for name in names)
    return EvalDataset("told", "plain", "told", "70", "open", items, documents)
