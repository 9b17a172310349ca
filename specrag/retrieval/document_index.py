"""An open index: one published generation, searched over all of its segments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from specrag.errors import IndexFormatError, InputError
from specrag.retrieval.document import Document, Passage
from specrag.retrieval.filters import Filter
from specrag.retrieval.generation import Generation, check_files, current_generation, rebuild_hint
from specrag.retrieval.indexed import DocumentInfo
from specrag.retrieval.layout import Manifest
from specrag.retrieval.lexical_index import bm25_search
from specrag.retrieval.segment import Segment
from specrag.retrieval.vector_factory import VectorSettings
from specrag.retrieval.vector_index import MISSING_ID

Hits = list[tuple[float, int]]
"""Scores and passage ids, best first; equal scores in the order of ids."""


class DocumentIndex:
    """The documents of one generation; it stays as it is whatever a writer publishes meanwhile.

    All methods may be called from several threads. Made by ``open``.

    Args:
        generation: What was published.
        segments: Its segments, open.
    """

    def __init__(self, generation: Generation, segments: Sequence[Segment]) -> None:
        self.generation = generation
        self.segments = tuple(segments)

    @classmethod
    def open(
        cls, path: Path, settings: VectorSettings | None = None, *, check: bool = True
    ) -> DocumentIndex:
        """Opens the generation in use.

        Args:
            path: The index folder.
            settings: How vectors are searched.
            check: Whether every byte is compared with its checksum first.

        Raises:
            IndexFormatError: There is no index, or it is damaged; the hint says what to do.
        """
        generation = current_generation(path)
        try:
            return cls._open(generation, settings or VectorSettings(), check)
        except (IndexFormatError, OSError):
            # A writer may have published twice and pruned since the pointer was read.
            again = current_generation(path)
            if again.number == generation.number:
                raise
            return cls._open(again, settings or VectorSettings(), check)

    @classmethod
    def _open(cls, generation: Generation, settings: VectorSettings, check: bool) -> DocumentIndex:
        check_files(generation, contents=check)
        segments: list[Segment] = []
        try:
            for record in generation.manifest.segments:
                segments.append(Segment.open(generation.segment_path(record), record, settings))
        except IndexFormatError as error:
            for segment in segments:
                segment.close()
            raise IndexFormatError(error.message, hint=rebuild_hint(generation.path)) from error
        return cls(generation, segments)

    def __enter__(self) -> DocumentIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the files; the index cannot be used afterwards."""
        for segment in self.segments:
            segment.close()

    @property
    def manifest(self) -> Manifest:
        """What the index says of itself."""
        return self.generation.manifest

    @property
    def num_passages(self) -> int:
        """Passages that can be found."""
        return self.manifest.num_passages

    @property
    def num_searches(self) -> int:
        """Searches of the vectors so far, one for each segment."""
        return sum(segment.vectors.num_searches for segment in self.segments)

    def documents(self) -> list[DocumentInfo]:
        """Lists the documents, oldest first."""
        return [document for segment in self.segments for document in segment.documents()]

    def document(self, key: str) -> Document:
        """Returns a whole document.

        Args:
            key: Its id.

        Raises:
            InputError: There is no such document.
        """
        for segment in self.segments:
            if any(found.id == key for found in segment.documents_called([key])):
                return segment.store.document(key)
        raise InputError(f"no document has the id {key!r}")

    def get(self, ids: Sequence[int]) -> list[Passage]:
        """Returns passages in the order of their ids.

        Args:
            ids: Passage ids; may repeat.

        Raises:
            InputError: An id is not in the index.
        """
        found: dict[int, Passage] = {}
        for segment in self.segments:
            wanted = [number for number in ids if number not in found]
            found |= segment.store.find(wanted) if wanted else {}
        missing = [number for number in ids if number not in found]
        if missing:
            raise InputError(f"no passage has the id {missing[0]}")
        return [found[number] for number in ids]

    def passages(self) -> Iterator[Passage]:
        """Yields all passages, oldest first."""
        return (passage for segment in self.segments for passage in segment.passages())

    def search_vectors(
        self, query: npt.NDArray[np.float32], k: int, where: Filter | None = None
    ) -> Hits:
        """Finds the passages whose vectors are nearest to a query's.

        Args:
            query: The vector of the query, [1, dimension].
            k: Most passages.
            where: Documents to look at; all by default.

        Returns:
            Inner products with ids.
        """
        found: Hits = []
        for segment in self.segments:
            allowed = segment.allowed(where)
            if segment.record.num_live_passages == 0 or (allowed is not None and not len(allowed)):
                continue
            most = min(k, segment.record.num_passages)
            hits = segment.vectors.search(query, most, segment.selection(allowed))
            pairs = zip(hits.scores[0].tolist(), hits.ids[0].tolist(), strict=True)
            found += [(score, number) for score, number in pairs if number != MISSING_ID]
        return sorted(found, key=lambda hit: (-hit[0], hit[1]))[:k]

    def search_terms(self, query: str, k: int, where: Filter | None = None) -> Hits:
        """Finds the passages that share words with a query, by BM25.

        Args:
            query: The query.
            k: Most passages.
            where: Documents to look at; all by default.
        """
        return bm25_search(
            [segment.terms for segment in self.segments],
            query,
            k,
            allowed=[segment.allowed(where) for segment in self.segments],
            excluded=[segment.gone for segment in self.segments],
        )

    def vectors_of(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """Returns the vectors of passages, [num_ids, dimension].

        Args:
            ids: Passage ids.

        Raises:
            InputError: An id is not in the index.
        """
        vectors = np.empty((len(ids), self.manifest.origin.dimension), dtype=np.float32)
        places = {number: place for place, number in enumerate(ids)}
        for segment in self.segments:
            held = list(segment.store.find(list(places)))
            if held:
                rows = segment.vectors.vectors_of(np.array(held, dtype=np.int64))
                vectors[[places.pop(number) for number in held]] = rows
        if places:
            raise InputError(f"no passage has the id {next(iter(places))}")
        return vectors

    def passages_with(self, terms: Sequence[str]) -> dict[str, int]:
        """Returns how many passages hold each term, in text or heading; unknown ones are left out.

        Args:
            terms: Content words, as ``terms.content_words`` gives them.
        """
        counts: Counter[str] = Counter()
        for segment in self.segments:
            counts.update(segment.terms.passages_with(terms))
        return dict(counts)

    @cached_property
    def field_names(self) -> list[str]:
        """The names of all metadata that any document has."""
        names = {name for document in self.documents() for name in document.metadata}
        return sorted(names)
