"""Writes one segment: documents are cut and stored as they come, then encoded together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from specrag.retrieval.document import Document, Passage
from specrag.retrieval.indexed import IndexedFile
from specrag.retrieval.layout import (
    PASSAGES_NAME,
    TERMS_NAME,
    VECTORS_NAME,
    SegmentRecord,
    file_record,
)
from specrag.retrieval.lexical_index import LexicalIndex
from specrag.retrieval.segment import indexed_texts
from specrag.retrieval.store import PassageStore
from specrag.retrieval.vector_factory import VectorSettings
from specrag.retrieval.vector_index import VectorIndex

Vectors = npt.NDArray[np.float32]
EncodePassages = Callable[[Sequence[Passage]], Vectors]

# Passages whose texts and new vectors are held at once; they are sorted by length within a block.
_BLOCK = 1024


class SegmentWriter:
    """Fills the folder of a new segment.

    Args:
        folder: An empty folder.
        dimension: Length of the vectors.
        settings: How vectors are kept.
    """

    def __init__(self, folder: Path, dimension: int, settings: VectorSettings) -> None:
        self.folder = folder
        self._dimension = dimension
        self._settings = settings
        self._store = PassageStore.create(folder / PASSAGES_NAME)
        self.num_documents = 0
        self.num_passages = 0

    def close(self) -> None:
        """Closes the files, complete or not."""
        self._store.close()

    def put(
        self, document: Document, passages: Sequence[Passage], file: IndexedFile | None = None
    ) -> None:
        """Adds a document.

        Args:
            document: The document.
            passages: Its passages, with ids above all before.
            file: The file it was read from, if it was.

        Raises:
            InputError: The document cannot be stored; nothing of it is then.
        """
        self._store.put(document, passages, file)
        self.num_documents += 1
        self.num_passages += len(passages)

    def finish(self, encode: EncodePassages, *, progress: bool = False) -> SegmentRecord:
        """Makes vectors and terms of all passages, and closes the files.

        Args:
            encode: Turns passages into vectors, [num_passages, dimension].
            progress: Whether to show progress bars on standard error.

        Returns:
            The record of the segment, still without a name.
        """
        ids = np.empty(self.num_passages, dtype=np.int64)
        vectors = np.empty((self.num_passages, self._dimension), dtype=np.float32)
        done = 0
        with tqdm(total=self.num_passages, desc="encoding", disable=not progress) as bar:
            for block in self._blocks():
                ids[done : done + len(block)] = [passage.id for passage in block]
                vectors[done : done + len(block)] = encode(block)
                done += len(block)
                bar.update(len(block))
        LexicalIndex.write(self.folder / TERMS_NAME, indexed_texts(self._store.passages()))
        self._store.close()
        index = VectorIndex.build(ids, vectors, self._settings, progress=progress)
        index.save(self.folder / VECTORS_NAME)
        files = {path.name: file_record(path) for path in sorted(self.folder.iterdir())}
        return SegmentRecord("", self.num_documents, self.num_passages, 0, 0, "", files)

    def _blocks(self) -> Iterator[list[Passage]]:
        block: list[Passage] = []
        for passage in self._store.passages():
            block.append(passage)
            if len(block) == _BLOCK:
                yield block
                block = []
        if block:
            yield block
