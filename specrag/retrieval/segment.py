"""One immutable part of an index: documents, their terms and their vectors, and what is gone.

The design is Lucene's: adding makes a new segment, removing marks documents beside a segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from specrag.errors import IndexFormatError
from specrag.retrieval.document import Passage
from specrag.retrieval.filters import Filter
from specrag.retrieval.generation import force_to_disk
from specrag.retrieval.indexed import DocumentInfo
from specrag.retrieval.layout import (
    PASSAGES_NAME,
    TERMS_NAME,
    VECTORS_NAME,
    SegmentRecord,
    deleted_name,
    file_record,
)
from specrag.retrieval.lexical_index import LexicalIndex
from specrag.retrieval.store import PassageStore
from specrag.retrieval.tombstones import Tombstone, Tombstones
from specrag.retrieval.vector_factory import VectorSettings
from specrag.retrieval.vector_index import VectorIndex
from specrag.retrieval.vector_rows import Selection

Ids = npt.NDArray[np.int64]


class Segment:
    """An open segment. All methods may be called from several threads.

    Args:
        record: As the manifest names it.
        store: Its documents and passages.
        terms: Its terms.
        vectors: The vectors of its passages.
        tombstones: Its documents that are gone.
    """

    def __init__(
        self,
        record: SegmentRecord,
        store: PassageStore,
        terms: LexicalIndex,
        vectors: VectorIndex,
        tombstones: Tombstones,
    ) -> None:
        self.record = record
        self.store = store
        self.terms = terms
        self.vectors = vectors
        self.tombstones = tombstones
        self._gone = tombstones.passages() if len(tombstones) else None
        self._all_live = Selection(None, self._gone) if self._gone is not None else None

    @classmethod
    def open(cls, folder: Path, record: SegmentRecord, settings: VectorSettings) -> Segment:
        """Opens a segment whose files have been checked.

        Args:
            folder: Its folder.
            record: As the manifest names it.
            settings: How vectors are searched.

        Raises:
            IndexFormatError: A file is missing, damaged, or not what the manifest says.
        """
        gone = Tombstones.load(folder / record.deleted) if record.deleted else Tombstones()
        vectors = VectorIndex.load(folder / VECTORS_NAME, settings=settings)
        store = PassageStore.open(folder / PASSAGES_NAME)
        try:
            segment = cls(record, store, LexicalIndex.open(folder / TERMS_NAME), vectors, gone)
        except IndexFormatError:
            store.close()
            raise
        try:
            segment._check_sizes()
        except IndexFormatError:
            segment.close()
            raise
        return segment

    def close(self) -> None:
        """Closes the files; the segment cannot be used afterwards."""
        self.terms.close()
        self.store.close()

    @property
    def gone(self) -> Ids | None:
        """Ids of the passages that are gone, sorted; None when none is."""
        return self._gone

    def documents(self) -> list[DocumentInfo]:
        """Lists the documents that can be found, in the order they were put."""
        gone = self.tombstones.documents
        return [found for found in self.store.documents() if found.number not in gone]

    def documents_called(self, names: list[str]) -> list[DocumentInfo]:
        """Returns the documents that can be found and have some ids, or come from some files.

        Args:
            names: Ids of documents or their sources.
        """
        gone = self.tombstones.documents
        return [one for one in self.store.documents_called(names) if one.number not in gone]

    def passages(self) -> Iterator[Passage]:
        """Yields the passages that can be found, in the order of their ids."""
        gone = set() if self._gone is None else set(self._gone.tolist())
        return (passage for passage in self.store.passages() if passage.id not in gone)

    def allowed(self, where: Filter | None) -> Ids | None:
        """Returns the ids of the passages that a filter lets through, None for all of them.

        Args:
            where: The filter.
        """
        if where is None:
            return None
        condition, parameters = where.sql()
        return self.store.passage_ids(condition, parameters)

    def selection(self, allowed: Ids | None) -> Selection | None:
        """Returns what a search of the vectors may find, None for everything.

        Args:
            allowed: From ``allowed``.
        """
        return self._all_live if allowed is None else Selection(allowed, self._gone)

    def write_deleted(self, folder: Path, gone: Iterable[Tombstone], number: int) -> SegmentRecord:
        """Writes a new file of deletions beside the segment, which itself stays as it is.

        Args:
            folder: Its folder.
            gone: Documents that are gone beside those that are already.
            number: Of the generation that will name the file.

        Returns:
            The record for that generation.
        """
        record, tombstones = self.record, self.tombstones.with_more(gone)
        path = folder / deleted_name(number)
        tombstones.save(path)
        force_to_disk(path)
        files = {name: kept for name, kept in record.files.items() if name != record.deleted}
        return replace(
            record,
            num_deleted_documents=len(tombstones),
            num_deleted_passages=tombstones.num_passages,
            deleted=path.name,
            files={**files, path.name: file_record(path)},
        )

    def _check_sizes(self) -> None:
        wanted = (self.record.num_documents, *[self.record.num_passages] * 3)
        found = (
            self.store.count_documents(),
            self.store.count(),
            len(self.vectors),
            self.terms.num_passages,
        )
        if found != wanted:
            raise IndexFormatError(
                f"segment {self.record.name} should hold {wanted[0]} documents and {wanted[1]} "
                f"passages, found {found[0]} documents, {found[1]} passages, {found[2]} vectors "
                f"and terms of {found[3]} passages"
            )


def indexed_text(passage: Passage) -> str:
    """Returns the text of a passage that a search by words looks at.

    Args:
        passage: The passage.
    """
    return f"{passage.heading or ''} {passage.text}"


def indexed_texts(passages: Iterable[Passage]) -> Iterator[tuple[int, str]]:
    """Yields ids and texts, as the lexical index takes them.

    Args:
        passages: The passages.
    """
    return ((passage.id, indexed_text(passage)) for passage in passages)
