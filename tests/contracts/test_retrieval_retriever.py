"""What every retriever must keep to; the contract is in ``specrag/retrieval/retriever.py``."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

from specrag.errors import InputError
from specrag.retrieval.build import open_writer
from specrag.retrieval.document import Document
from specrag.retrieval.encoder import Encoder, HashingEncoder, SentenceTransformerEncoder
from specrag.retrieval.langchain_retriever import LangChainRetriever
from specrag.retrieval.recipe import IndexRecipe
from specrag.retrieval.rerank import WordOverlapReranker
from specrag.retrieval.retriever import Retriever, open_index
from specrag.retrieval.search_settings import SearchSettings

TEXTS = {
    "bread.md": "# Bread\n\nBake the bread for forty minutes in a hot oven.",
    "gate.md": "# Gate\n\nThe gate decides whether documents are needed.",
    "ships.txt": "The ship left the harbour at dawn.",
}
NUM_PASSAGES = 3


KINDS = ["dense", "hybrid", "reranked", "diverse", "hnsw", "split", "langchain"]


@pytest.fixture(
    scope="module", params=[*KINDS, pytest.param("embedded", marks=pytest.mark.embedded)]
)
def retriever(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Retriever]:
    encoder: Encoder = HashingEncoder(256)
    kind = request.param
    if kind == "embedded":
        encoder = SentenceTransformerEncoder(request.getfixturevalue("embedded_encoder_path"))
    if kind == "langchain":
        yield langchain_retriever(HashingEncoder(256))
        return
    root = tmp_path_factory.mktemp("retriever")
    vectors = "HNSW16" if kind == "hnsw" else "auto"
    recipe = IndexRecipe("three", root, "any", vectors=vectors)
    documents = [Document(name, text, name) for name, text in TEXTS.items()]
    groups = [[document] for document in documents] if kind == "split" else [documents]
    for group in groups:
        with open_writer(recipe, encoder, root / "index") as writer:
            for document in group:
                writer.put(document)
            writer.commit()
    settings = SearchSettings(
        "hybrid" if kind == "hybrid" else "dense", diversity=0.2 if kind == "diverse" else 0.0
    )
    reranker = WordOverlapReranker() if kind == "reranked" else None
    opened = open_index(root / "index", encoder, settings, reranker=reranker)
    yield opened
    opened.close()


def langchain_retriever(encoder: HashingEncoder) -> Retriever:
    """Returns a LangChain vector store of the same texts behind our contract."""

    class Hashed(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [[float(value) for value in row] for row in encoder.encode_documents(texts)]

        def embed_query(self, text: str) -> list[float]:
            return self.embed_documents([text])[0]

    store = InMemoryVectorStore(Hashed())
    metadata = [{"source": name} for name in TEXTS]
    store.add_texts(list(TEXTS.values()), metadata, ids=list(TEXTS))
    return LangChainRetriever(store, "three")


@pytest.mark.parametrize(
    ("query", "document"),
    [
        ("How long must bread bake in the oven?", "bread.md"),
        ("Who decides whether documents are needed?", "gate.md"),
        ("When did the ship leave the harbour?", "ships.txt"),
    ],
)
def test_the_right_passage_comes_first(retriever: Retriever, query: str, document: str) -> None:
    assert retriever.retrieve(query, 1)[0].passage.document == document


@pytest.mark.parametrize(("k", "expected"), [(1, 1), (2, 2), (3, 3), (4, 3), (10**6, 3)])
def test_at_most_k_passages_come_back(retriever: Retriever, k: int, expected: int) -> None:
    assert len(retriever.retrieve("bread", k)) == expected


def test_passages_differ_and_come_best_first(retriever: Retriever) -> None:
    found = retriever.retrieve("the gate", NUM_PASSAGES)
    assert len({entry.passage.id for entry in found}) == NUM_PASSAGES
    scores = [entry.score for entry in found]
    assert scores == sorted(scores, reverse=True)


def test_fewer_passages_are_the_first_of_more(retriever: Retriever) -> None:
    assert retriever.retrieve("the gate", 2) == retriever.retrieve("the gate", 3)[:2]


def test_passages_are_stretches_of_their_documents(retriever: Retriever) -> None:
    for entry in retriever.retrieve("anything", NUM_PASSAGES):
        passage = entry.passage
        assert TEXTS[passage.document][passage.start : passage.end] == passage.text


@pytest.mark.parametrize("k", [0, -1])
def test_k_below_one_is_refused(retriever: Retriever, k: int) -> None:
    with pytest.raises(InputError, match=f"k must be at least 1, got {k}"):
        retriever.retrieve("bread", k)


@pytest.mark.parametrize("query", ["", " \n"])
def test_a_blank_query_is_refused(retriever: Retriever, query: str) -> None:
    with pytest.raises(InputError, match="the query is blank"):
        retriever.retrieve(query, 1)


def test_only_lookups_are_counted(retriever: Retriever) -> None:
    before = retriever.num_lookups
    retriever.retrieve("bread", 2)
    with pytest.raises(InputError):
        retriever.retrieve("bread", 0)
    assert retriever.num_lookups == before + 1


def test_several_threads_may_retrieve(retriever: Retriever) -> None:
    expected = [entry.passage for entry in retriever.retrieve("the gate", 3)]
    before = retriever.num_lookups
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: retriever.retrieve("the gate", 3), range(8)))
    assert [[entry.passage for entry in entries] for entries in found] == [expected] * 8
    assert retriever.num_lookups == before + 8


def test_it_names_itself(retriever: Retriever) -> None:
    assert retriever.name == "three"
    assert retriever.index_version
    assert retriever.fingerprint
