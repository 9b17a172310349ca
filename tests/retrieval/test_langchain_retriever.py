"""LangChain's own vector store and retriever stand in for an index."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore

from specrag.errors import ConfigError, InputError
from specrag.retrieval.encoder import HashingEncoder
from specrag.retrieval.filters import Filter
from specrag.retrieval.langchain_retriever import LangChainRetriever

TEXTS = ("The gate decides.", "A tree merges drafts.", "The cache rolls back.")


class Hashed(Embeddings):
    """Our hashing encoder behind LangChain's interface."""

    encoder = HashingEncoder()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[float(x) for x in row] for row in self.encoder.encode_documents(texts)]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


class Fixed(BaseRetriever):
    """Finds the same for every question."""

    found: list[Document]

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        return self.found


@pytest.fixture
def store() -> InMemoryVectorStore:
    """A store with three texts and no function for relevance."""
    made = InMemoryVectorStore(Hashed())
    made.add_documents(
        [
            Document(text, id=str(n), metadata={"source": f"{n}.md", "start_index": 10 * n})
            for n, text in enumerate(TEXTS)
        ]
    )
    return made


class Relevant(InMemoryVectorStore):
    """A store that says what its scores mean."""

    def _select_relevance_score_fn(self) -> Any:
        return lambda score: score


def test_a_vector_store_finds_passages(store: InMemoryVectorStore) -> None:
    retriever = LangChainRetriever(store)
    found = retriever.retrieve("A tree merges drafts.", 2)
    assert [one.score for one in found] == [1.0, 0.5]
    best = found[0].passage
    assert (best.text, best.document, best.start, best.end) == (TEXTS[1], "1.md", 10, 31)
    assert retriever.num_lookups == 1
    assert retriever.retrieve("A tree merges drafts.", 2) == found  # ids stay


def test_relevance_is_passed_on() -> None:
    made = Relevant(Hashed())
    made.add_texts(list(TEXTS))
    found = LangChainRetriever(made).retrieve("The gate decides.", 3)
    assert found[0].score == pytest.approx(1.0, abs=1e-5)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


def test_a_retriever_finds_passages_once_each_and_no_more_than_asked(
    store: InMemoryVectorStore,
) -> None:
    two = [Document("One.", metadata={"page_label": "7"}), Document("Two.")]
    found = LangChainRetriever(Fixed(found=[*two, *two]), "notes").retrieve("x", 5)
    assert [(one.passage.text, one.passage.page) for one in found] == [("One.", 7), ("Two.", None)]
    assert found[0].passage.document == "notes"
    assert len(LangChainRetriever(Fixed(found=two)).retrieve("x", 1)) == 1
    assert len(LangChainRetriever(store.as_retriever()).retrieve("gate", 9)) == 3


def test_what_cannot_be_asked_is_refused(store: InMemoryVectorStore) -> None:
    with pytest.raises(ConfigError, match="int is no LangChain vector store or retriever"):
        LangChainRetriever(3)
    retriever = LangChainRetriever(store, "notes", "7")
    assert retriever.fingerprint == "langchain:InMemoryVectorStore:notes:7"
    assert (retriever.name, retriever.index_version) == ("notes", "7")
    for query, k in ((" ", 1), ("x", 0)):
        with pytest.raises(InputError):
            retriever.retrieve(query, k)
    with pytest.raises(InputError, match="notes takes no filters of specrag"):
        retriever.retrieve("x", 1, Filter.of({"a": 1}))
    assert retriever.term_coverage("x") == 1.0
