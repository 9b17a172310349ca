"""The retriever contract (a query to scored passages) and the search of an index."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from pathlib import Path

from specrag.errors import IndexFormatError, InputError
from specrag.retrieval.diversity import mmr
from specrag.retrieval.document import ScoredPassage
from specrag.retrieval.document_index import DocumentIndex, Hits
from specrag.retrieval.encoder import Encoder, Vectors
from specrag.retrieval.filters import Filter
from specrag.retrieval.fusion import reciprocal_rank_fusion
from specrag.retrieval.generation import rebuild_hint
from specrag.retrieval.rerank import Reranker
from specrag.retrieval.search_settings import SearchSettings
from specrag.retrieval.terms import TERMS_VERSION, content_words, coverage
from specrag.retrieval.vector_factory import VectorSettings

# Each list of a fusion is this much longer than what is wanted, but not shorter than the second.
_CANDIDATES_FACTOR = 4
_LEAST_CANDIDATES = 50


class Retriever(ABC):
    """Finds passages for a query; ``retrieve`` may be called from several threads."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the index."""

    @property
    @abstractmethod
    def index_version(self) -> str:
        """Short digest of the indexed content."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A string that changes whenever the passages found for a query could."""

    @property
    @abstractmethod
    def num_lookups(self) -> int:
        """Calls of ``retrieve`` so far that looked something up."""

    @abstractmethod
    def retrieve(self, query: str, k: int, where: Filter | None = None) -> list[ScoredPassage]:
        """Finds the passages most similar to a query.

        Args:
            query: The question or text to search for.
            k: Most passages to return, at least 1; may exceed the size of the index.
            where: Which documents to look at, by their metadata; all by default.

        Returns:
            Passages that differ from each other, best first; equal scores in the order of ids.

        Raises:
            InputError: The query is blank, k is below 1, or the filter cannot be applied.
        """

    def warm_up(self) -> None:  # noqa: B027 - most retrievers have nothing to load
        """Loads what the first lookup would load; may run in a thread of its own."""

    def term_coverage(self, query: str) -> float:
        """Returns how much of a query's rare words the documents know, without a lookup.

        Args:
            query: The question.

        Returns:
            From 0 to 1; 1 for a retriever that keeps no statistics of terms.
        """
        del query
        return 1.0


class IndexRetriever(Retriever):
    """Searches an index by meaning, by words, or by both.

    The score of a passage is that of the last step: an inner product, a BM25 score, a fused score
    or a reranker's.

    Args:
        index: The documents.
        encoder: The encoder that made their vectors.
        settings: How to search.
        reranker: Orders the best passages anew.
    """

    def __init__(
        self,
        index: DocumentIndex,
        encoder: Encoder,
        settings: SearchSettings | None = None,
        reranker: Reranker | None = None,
    ) -> None:
        self.index = index
        self.encoder = encoder
        self.settings = settings or SearchSettings()
        self.reranker = reranker
        self._lock = threading.Lock()
        self._num_lookups = 0

    @property
    def name(self) -> str:
        """Name of the index."""
        return self.index.manifest.name

    @property
    def index_version(self) -> str:
        """As the manifest says."""
        return self.index.manifest.index_version

    @property
    def fingerprint(self) -> str:
        """Made of what the index was built from; the bytes of the files vary with the machine."""
        made_from = self.index.manifest.origin
        parts = [
            self.settings.mode,
            self.index.manifest.corpus_fingerprint,
            str(made_from.splitter_version),
            str(made_from.chunk_size),
            str(made_from.chunk_overlap),
            self.encoder.fingerprint,
        ]
        if self.settings.mode != "dense":
            parts.append(f"terms={TERMS_VERSION}")
        if self.settings.diversity:
            parts.append(f"diversity={self.settings.diversity}")
        if self.reranker is not None:
            parts.append(f"{self.reranker.fingerprint}:{self.settings.rerank_candidates}")
        return ":".join(parts)

    @property
    def num_lookups(self) -> int:
        """Calls of ``retrieve`` so far that looked something up."""
        return self._num_lookups

    def retrieve(self, query: str, k: int, where: Filter | None = None) -> list[ScoredPassage]:
        """Encodes the query at most once and searches each segment; see the contract."""
        if not query.strip():
            raise InputError(f"the query is blank: {query!r}", hint="ask something")
        if k < 1:
            raise InputError(f"k must be at least 1, got {k}")
        if where is not None:
            where.check(self.index.field_names)
        with self._lock:
            self._num_lookups += 1
        return self._search(query, k, where)

    def with_settings(
        self, settings: SearchSettings, reranker: Reranker | None = None
    ) -> IndexRetriever:
        """Returns a retriever of the same open index that searches in another way.

        Args:
            settings: How to search.
            reranker: Orders the best passages anew.
        """
        return IndexRetriever(self.index, self.encoder, settings, reranker)

    def warm_up(self) -> None:
        """Loads the models of encoder and reranker."""
        if self.settings.mode != "bm25" or self.settings.diversity:
            self.encoder.warm_up()
        if self.reranker is not None:
            self.reranker.warm_up()

    def term_coverage(self, query: str) -> float:
        """Asks the term counts of the index; no vector is made or compared.

        Plain numbers do not count: they stand in any text, and a sum is not answered from it.
        """
        asked = content_words(query)
        words = sorted(word for word in asked if not word.isdigit())
        if asked and not words:
            return 0.0
        counts = self.index.passages_with(words)
        return coverage(words, counts, self.index.num_passages)

    def close(self) -> None:
        """Closes the files of the index; the retriever cannot be used afterwards."""
        self.index.close()

    def _search(self, query: str, k: int, where: Filter | None) -> list[ScoredPassage]:
        settings = self.settings
        vector = None if settings.mode == "bm25" else self.encoder.encode_queries([query])
        wanted = max(k, settings.rerank_candidates) if self.reranker else k
        hits = self._hits(
            query, vector, _candidates(wanted) if settings.diversity else wanted, where
        )
        if settings.diversity and hits:
            hits = self._diverse(query, vector, hits, wanted)
        passages = self.index.get([number for _, number in hits])
        found = [
            ScoredPassage(passage, score)
            for passage, (score, _) in zip(passages, hits, strict=True)
        ]
        # Variety decides what is reranked; the reranker then decides the order.
        return self.reranker.rerank(query, found, k) if self.reranker and found else found

    def _hits(self, query: str, vector: Vectors | None, k: int, where: Filter | None) -> Hits:
        if vector is None:
            return self.index.search_terms(query, k, where)
        if self.settings.mode == "dense":
            return self.index.search_vectors(vector, k, where)
        most = _candidates(k)
        lists = [
            self.index.search_vectors(vector, most, where),
            self.index.search_terms(query, most, where),
        ]
        fused = reciprocal_rank_fusion([[number for _, number in hits] for hits in lists])
        return fused[:k]

    def _diverse(self, query: str, vector: Vectors | None, hits: Hits, k: int) -> Hits:
        if vector is None:
            vector = self.encoder.encode_queries([query])
        vectors = self.index.vectors_of([number for _, number in hits])
        scores = [score for score, _ in hits]
        weight = 1.0 - self.settings.diversity
        places = mmr(vector[0], vectors, k, weight=weight, scores=scores)
        return [hits[place] for place in places]


def open_index(
    path: Path,
    encoder: Encoder,
    settings: SearchSettings | None = None,
    *,
    vectors: VectorSettings | None = None,
    reranker: Reranker | None = None,
    check: bool = True,
) -> IndexRetriever:
    """Opens an index after checking every byte of it.

    Args:
        path: The index folder.
        encoder: The encoder that the index was built with; its model is not loaded here.
        settings: How to search.
        vectors: How vectors are searched.
        reranker: Orders the best passages anew.
        check: Whether to check every byte.

    Raises:
        IndexFormatError: There is no index, it is damaged, or it was made by another encoder or
            another version of the format; the hint says what to do.
    """
    index = DocumentIndex.open(path, vectors, check=check)
    try:
        _check_encoder(path, index, encoder)
    except IndexFormatError:
        index.close()
        raise
    return IndexRetriever(index, encoder, settings, reranker)


def _candidates(k: int) -> int:
    return max(_LEAST_CANDIDATES, _CANDIDATES_FACTOR * k)


def _check_encoder(path: Path, index: DocumentIndex, encoder: Encoder) -> None:
    made = index.manifest.origin
    if (made.encoder_fingerprint, made.dimension) != (encoder.fingerprint, encoder.dimension):
        raise IndexFormatError(
            f"the index in {str(path)!r} was built with the encoder {made.encoder!r} "
            f"({made.encoder_fingerprint}, dimension {made.dimension}), not with "
            f"{encoder.name!r} ({encoder.fingerprint}, dimension {encoder.dimension})",
            hint=f"use the encoder {made.encoder!r}, or {rebuild_hint(path)}",
        )
