"""The retriever contract (a query to scored passages) and dense retrieval."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np

from specrag.errors import IndexFormatError, InputError
from specrag.retrieval.document import ScoredPassage
from specrag.retrieval.encoder import Encoder
from specrag.retrieval.generation import check_files, current_generation, rebuild_hint
from specrag.retrieval.layout import PASSAGES_NAME, VECTORS_NAME, Manifest
from specrag.retrieval.store import PassageStore
from specrag.retrieval.terms import content_words, coverage
from specrag.retrieval.vector_index import MISSING_ID, VectorIndex


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
    def retrieve(self, query: str, k: int) -> list[ScoredPassage]:
        """Finds the passages most similar to a query.

        Args:
            query: The question or text to search for.
            k: Most passages to return, at least 1; may exceed the size of the index.

        Returns:
            Passages that differ from each other, best first; equal scores in the order of ids.

        Raises:
            InputError: The query is blank or k is below 1.
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


class DenseRetriever(Retriever):
    """Compares the vector of the query with the vectors of all passages.

    Args:
        store: The passages.
        index: Their vectors, under the same ids.
        encoder: The encoder that made the vectors.
        manifest: What the index says of itself.
    """

    def __init__(
        self, store: PassageStore, index: VectorIndex, encoder: Encoder, manifest: Manifest
    ) -> None:
        self.store = store
        self.index = index
        self.encoder = encoder
        self.manifest = manifest
        self._lock = threading.Lock()
        self._num_lookups = 0

    @property
    def name(self) -> str:
        """Name of the recipe."""
        return self.manifest.name

    @property
    def index_version(self) -> str:
        """As the manifest says."""
        return self.manifest.index_version

    @property
    def fingerprint(self) -> str:
        """Made of what the index was built from; the bytes of the files vary with the machine."""
        made_from = self.manifest
        return (
            f"dense:{made_from.corpus_fingerprint}:{made_from.splitter_version}:"
            f"{made_from.chunk_size}:{made_from.chunk_overlap}:{self.encoder.fingerprint}"
        )

    @property
    def num_lookups(self) -> int:
        """Calls of ``retrieve`` so far that looked something up."""
        return self._num_lookups

    def retrieve(self, query: str, k: int) -> list[ScoredPassage]:
        """Encodes the query once and searches once; see the contract."""
        if not query.strip():
            raise InputError(f"the query is blank: {query!r}", hint="ask something")
        if k < 1:
            raise InputError(f"k must be at least 1, got {k}")
        with self._lock:
            self._num_lookups += 1
        num_wanted = max(1, min(k, len(self.index)))
        hits = self.index.search(self.encoder.encode_queries([query]), num_wanted)
        scores, ids = hits.scores[0], hits.ids[0]
        # FAISS leaves the order of equal scores open.
        order = [place for place in np.lexsort((ids, -scores)) if ids[place] != MISSING_ID]
        passages = self.store.get([int(ids[place]) for place in order])
        return [
            ScoredPassage(passage, float(scores[place]))
            for passage, place in zip(passages, order, strict=True)
        ]

    def warm_up(self) -> None:
        """Loads the encoder's model."""
        self.encoder.warm_up()

    def term_coverage(self, query: str) -> float:
        """Asks the term counts of the store; no vector is made or compared.

        Plain numbers do not count: they stand in any text, and a sum is not answered from it.
        """
        asked = content_words(query)
        words = sorted(word for word in asked if not word.isdigit())
        if asked and not words:
            return 0.0
        counts = self.store.passages_with(words)
        return coverage(words, counts, self.manifest.num_passages)

    def close(self) -> None:
        """Closes the files of the index; the retriever cannot be used afterwards."""
        self.store.close()


def open_index(path: Path, encoder: Encoder) -> DenseRetriever:
    """Opens an index after checking every byte of it.

    Args:
        path: The index folder.
        encoder: The encoder that the index was built with; its model is not loaded here.

    Raises:
        IndexFormatError: There is no index, it is damaged, or it was made by another encoder or
            another version of the format; the hint says what to do.
    """
    generation = current_generation(path)
    _check_encoder(path, generation.manifest, encoder)
    check_files(generation, contents=True)
    try:
        store = PassageStore.open(generation.path / PASSAGES_NAME)
        index = VectorIndex.load(generation.path / VECTORS_NAME)
    except IndexFormatError as error:
        raise IndexFormatError(error.message, hint=rebuild_hint(path)) from error
    _check_sizes(path, generation.manifest, store, index)
    return DenseRetriever(store, index, encoder, generation.manifest)


def _check_encoder(path: Path, manifest: Manifest, encoder: Encoder) -> None:
    made_by = (manifest.encoder_fingerprint, manifest.dimension)
    if made_by != (encoder.fingerprint, encoder.dimension):
        raise IndexFormatError(
            f"the index in {str(path)!r} was built with the encoder {manifest.encoder!r} "
            f"({manifest.encoder_fingerprint}, dimension {manifest.dimension}), not with "
            f"{encoder.name!r} ({encoder.fingerprint}, dimension {encoder.dimension})",
            hint=f"use the encoder {manifest.encoder!r}, or {rebuild_hint(path)}",
        )


def _check_sizes(path: Path, manifest: Manifest, store: PassageStore, index: VectorIndex) -> None:
    found = (store.count(), len(index), index.dimension)
    if found != (manifest.num_passages, manifest.num_passages, manifest.dimension):
        store.close()
        raise IndexFormatError(
            f"the index in {str(path)!r} should hold {manifest.num_passages} passages of dimension "
            f"{manifest.dimension}, found {found[0]} passages and {found[1]} vectors of dimension "
            f"{found[2]}",
            hint=rebuild_hint(path),
        )
