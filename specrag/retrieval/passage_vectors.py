"""Vectors of passages: taken over where the same text was encoded before, made where not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from specrag.retrieval.document import Passage
from specrag.retrieval.encoder import Encoder
from specrag.retrieval.encodings import EncodingJournal
from specrag.retrieval.fingerprints import text_hash
from specrag.retrieval.segment import Segment

Vectors = npt.NDArray[np.float32]

# Below this, keeping vectors for a writer that may be killed costs more than making them again.
_LEAST_JOURNALED = 256


class PassageVectors:
    """Makes vectors of passages, each text once.

    Args:
        encoder: Turns texts into vectors.
        segments: Of an index with vectors by the same encoder, to take from.
        journal: File that keeps vectors until they are published.
    """

    def __init__(self, encoder: Encoder, segments: Sequence[Segment], journal: Path) -> None:
        self._encoder = encoder
        self._segments = segments
        self._place = journal
        self._journal: EncodingJournal | None = None
        self.num_encoded = 0

    def __call__(self, passages: Sequence[Passage]) -> Vectors:
        """Returns the vectors of passages, [num_passages, dimension].

        Args:
            passages: The passages.
        """
        texts = {text_hash(passage.text): passage.text for passage in passages}
        known = self._indexed(list(texts))
        missing = [key for key in texts if key not in known]
        if len(missing) >= _LEAST_JOURNALED or self._place.exists():
            known |= self._opened().find(missing)
            missing = [key for key in missing if key not in known]
        if missing:
            made = self._encoder.encode_documents([texts[key] for key in missing])
            fresh = dict(zip(missing, made, strict=True))
            if len(missing) >= _LEAST_JOURNALED:
                self._opened().keep(fresh)
            self.num_encoded += len(missing)
            known |= fresh
        return np.stack([known[text_hash(passage.text)] for passage in passages])

    def close(self) -> None:
        """Closes the journal, which stays for the next writer."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def delete_journal(self) -> None:
        """Forgets the vectors of the journal: they are published."""
        self.close()
        EncodingJournal.delete(self._place)

    def _opened(self) -> EncodingJournal:
        if self._journal is None:
            encoder = self._encoder
            self._journal = EncodingJournal(self._place, encoder.fingerprint, encoder.dimension)
        return self._journal

    def _indexed(self, hashes: Sequence[bytes]) -> dict[bytes, Vectors]:
        known: dict[bytes, Vectors] = {}
        for segment in self._segments:
            found = segment.store.passages_with_texts([key for key in hashes if key not in known])
            if found:
                rows = segment.vectors.vectors_of(np.array(list(found.values()), dtype=np.int64))
                known |= dict(zip(found, rows, strict=True))
        return known
