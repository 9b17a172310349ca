"""Changes an index: documents are added, replaced and removed, then published in one step."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from specrag.errors import IndexFormatError, InputError
from specrag.retrieval.builder_lock import builder_lock
from specrag.retrieval.document import Document
from specrag.retrieval.document_index import DocumentIndex
from specrag.retrieval.encoder import Encoder
from specrag.retrieval.fingerprints import CorpusFingerprint, document_fingerprint, document_hash
from specrag.retrieval.generation import (
    Generation,
    building_folder,
    current_generation,
    next_number,
    place_segment,
    prune,
    publish,
)
from specrag.retrieval.indexed import DocumentInfo, IndexedFile
from specrag.retrieval.layout import (
    ENCODINGS_NAME,
    FORMAT_VERSION,
    IndexOrigin,
    Manifest,
    SegmentRecord,
)
from specrag.retrieval.merging import (
    merge_segments,
    segments_to_compact,
    segments_to_merge,
)
from specrag.retrieval.passage_vectors import PassageVectors
from specrag.retrieval.segment_writer import EncodePassages, SegmentWriter
from specrag.retrieval.splitter import Splitter
from specrag.retrieval.tombstones import Tombstone
from specrag.retrieval.vector_factory import VectorSettings, check_enough

DEFAULT_SEGMENT_PASSAGES = 1_000_000
"""Most passages of one segment; a larger index is split over several, searched in turn."""


class IndexWriter:
    """Collects changes of an index and publishes them together.

    Readers see all of the changes or none. What is not committed is discarded. Made by ``open``,
    which keeps other writers out.

    Args:
        path: The index folder.
        name: Name of the index.
        encoder: Turns passages into vectors.
        origin: How documents become passages and vectors.
        base: The index as it was, None to begin with nothing.
        previous: The index that is replaced; vectors of equal texts are taken over.
        settings: How vectors are kept.
        progress: Whether to show progress bars on standard error.
        segment_passages: Most passages of one segment.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        encoder: Encoder,
        origin: IndexOrigin,
        *,
        base: DocumentIndex | None,
        previous: DocumentIndex | None,
        settings: VectorSettings,
        progress: bool = False,
        segment_passages: int = DEFAULT_SEGMENT_PASSAGES,
    ) -> None:
        self.path = path
        self.name = name
        self.origin = origin
        self.base = base
        # Where files come from outlives a new encoder or splitter, and damaged vectors.
        known = base or previous
        self.scanned_at = base.manifest.scanned_at if base else 0
        self.roots = known.manifest.roots if known else ()
        self.excluded = frozenset(known.manifest.excluded if known else ())
        self._splitter = Splitter(origin.chunk_size, origin.chunk_overlap, encoder.count_tokens)
        self.previous = previous
        old = previous.segments if previous and _same_encoder(previous, origin) else ()
        self._vectors = PassageVectors(encoder, old, path / ENCODINGS_NAME)
        self._settings = settings
        self._progress = progress
        self._segment_passages = segment_passages
        self._next_passage = base.manifest.next_passage if base else 0
        self._fingerprint = CorpusFingerprint(*([base.manifest.corpus_fingerprint] if base else []))
        self._gone: dict[str, list[Tombstone]] = {}
        self._new: dict[str, str] = {}
        self._placed: list[SegmentRecord] = []
        self._open: SegmentWriter | None = None
        self._stack = ExitStack()

    @classmethod
    @contextmanager
    def open(
        cls,
        path: Path,
        name: str,
        encoder: Encoder,
        origin: IndexOrigin,
        *,
        settings: VectorSettings | None = None,
        fresh: bool = False,
        progress: bool = False,
        segment_passages: int = DEFAULT_SEGMENT_PASSAGES,
        wait_seconds: float = 0.0,
    ) -> Iterator[IndexWriter]:
        """Opens an index for changes, and keeps other writers out meanwhile.

        Args:
            path: The index folder; made if it does not exist.
            name: Name of the index.
            encoder: Turns passages into vectors.
            origin: How documents become passages and vectors; an index of another origin, or one
                that is damaged, is begun anew.
            settings: How vectors are kept.
            fresh: Whether to begin anew in any case.
            progress: Whether to show progress bars on standard error.
            segment_passages: Most passages of one segment.
            wait_seconds: How long to wait for another writer to finish.

        Raises:
            InputError: Another process is writing, or the folder cannot be written to.
        """
        with builder_lock(path, wait_seconds=wait_seconds), ExitStack() as stack:
            previous = _opened(path, settings, None if fresh else origin)
            if previous is not None:
                stack.callback(previous.close)
            is_base = previous is not None and previous.manifest.origin == origin and not fresh
            writer = cls(
                path,
                name,
                encoder,
                origin,
                base=previous if is_base else None,
                previous=previous,
                settings=settings or VectorSettings(factory=origin.vectors),
                progress=progress,
                segment_passages=segment_passages,
            )
            stack.callback(writer.close)
            yield writer

    def close(self) -> None:
        """Discards what was not committed."""
        self._stack.close()
        self._vectors.close()

    @property
    def has_changed(self) -> bool:
        """Whether a commit would change what can be found."""
        return bool(self._new or self._gone) or self.base is None

    @property
    def num_documents(self) -> int:
        """Documents that a commit would leave."""
        old = self.base.manifest.num_documents if self.base else 0
        return old - sum(map(len, self._gone.values())) + len(self._new)

    @property
    def num_encoded(self) -> int:
        """Passages that the encoder was run on so far."""
        return self._vectors.num_encoded

    def has_new(self, key: str) -> bool:
        """Tells whether a document was put since the index was opened.

        Args:
            key: Id of the document.
        """
        return key in self._new

    def find_id(self, key: str) -> DocumentInfo | None:
        """Returns the document of the index with an id, None without one that is not removed.

        Args:
            key: Id of the document.
        """
        found = (info for _, info in self._located([key]) if info.id == key)
        return next(found, None)

    def put(self, document: Document, file: IndexedFile | None = None) -> bool:
        """Adds a document, or replaces the one with its id.

        Args:
            document: The document.
            file: The file it was read from, if it was.

        Returns:
            False when the very same document is there already.

        Raises:
            InputError: The document holds no text, cannot be stored, or its id was put before.
        """
        if document.id in self._new:
            other = self._new[document.id]
            raise InputError(
                f"the id {document.id!r} of {document.source!r} is taken by {other!r}",
                hint="give the documents different names",
            )
        old = [
            (name, info) for name, info in self._located([document.id]) if info.id == document.id
        ]
        if any(info.hash == document_hash(document) for _, info in old):
            return False
        passages = self._splitter.split(document, first_id=self._next_passage)
        if not passages:
            raise InputError(f"the document {document.id!r} holds no text")
        self._writer().put(document, passages, file)
        self._new[document.id] = document.source
        self._next_passage += len(passages)
        self._fingerprint.add(document_fingerprint(document))
        for name, info in old:
            self._mark(name, info)
        if self._writer().num_passages >= self._segment_passages:
            self._flush()
        return True

    def remove(self, *names: str) -> list[str]:
        """Removes documents.

        Args:
            names: Ids of documents or files that they were read from.

        Returns:
            The ids of the documents that are gone now.

        Raises:
            InputError: No document has such an id or source; nothing is removed then.
        """
        pending = [name for name in names if name in self._new]
        if pending:
            raise InputError(
                f"the document {pending[0]!r} was put but not committed", hint="commit it first"
            )
        found = self._located(list(names))
        known = {info.id for _, info in found} | {info.source for _, info in found}
        unknown = [name for name in names if name not in known]
        if unknown:
            raise InputError(
                f"no document of {self.name!r} has the id or the path {unknown[0]!r}",
                hint=f"list them with: specrag index info {self.name} --documents",
            )
        for name, info in found:
            self._mark(name, info)
        return [info.id for _, info in found]

    def compact(self) -> Generation:
        """Publishes all changes, and wipes what is gone from the files.

        The generation before is removed too, so a reader must not be about to open it.
        """
        generation = self.commit(compact=True)
        prune(generation, None)
        return generation

    def commit(self, *, compact: bool = False) -> Generation:
        """Publishes all changes.

        Args:
            compact: Whether to write everything anew without what is gone.

        Raises:
            ConfigError: A new index has too few passages for the FAISS factory of its recipe.

        Returns:
            The generation in use now.
        """
        if not (self.has_changed or compact or self._has_new_settings()):
            assert self.base is not None, "an index without a base has changed"
            return self.base.generation
        self._flush()
        number = next_number(self.path)
        records = [*self._marked_segments(number), *self._placed]
        groups = (segments_to_compact if compact else segments_to_merge)(
            records, self._segment_passages
        )
        for group in groups:
            merged = merge_segments(
                self.path, group, self.origin.dimension, self._settings, progress=self._progress
            )
            records = [record for record in records if record not in group] + [merged]
        generation = publish(self.path, number, self._manifest(records))
        self._vectors.delete_journal()
        old = self.base or self.previous
        prune(generation, old.generation if old else None)
        return generation

    def _has_new_settings(self) -> bool:
        assert self.base is not None, "an index without a base has changed"
        found = self.base.manifest
        known = (found.name, found.roots, frozenset(found.excluded))
        return (self.name, self.roots, self.excluded) != known

    def _located(self, names: list[str]) -> list[tuple[str, DocumentInfo]]:
        """Returns documents of the base that are not marked yet, with the names of segments."""
        found = []
        for segment in self.base.segments if self.base else ():
            marked = {tombstone.document for tombstone in self._gone.get(segment.record.name, ())}
            found += [
                (segment.record.name, info)
                for info in segment.documents_called(names)
                if info.number not in marked
            ]
        return found

    def _mark(self, segment: str, info: DocumentInfo) -> None:
        self._gone.setdefault(segment, []).append(info.tombstone)
        self._fingerprint.remove(info.fingerprint)

    def _writer(self) -> SegmentWriter:
        if self._open is None:
            folder = self._stack.enter_context(building_folder(self.path))
            self._open = SegmentWriter(folder, self.origin.dimension, self._settings)
            self._stack.callback(self._open.close)
        return self._open

    def _flush(self) -> None:
        if self._open is None:
            return
        if self.base is None and not self._placed:  # later segments may be small
            check_enough(self._settings, self._open.num_passages, self.origin.dimension)
        self._placed.append(self._finish(self._open, self._vectors))
        self._open = None
        self._stack.close()

    def _finish(self, writer: SegmentWriter, encode: EncodePassages) -> SegmentRecord:
        record = writer.finish(encode, progress=self._progress)
        return replace(record, name=place_segment(self.path, writer.folder).name)

    def _marked_segments(self, number: int) -> list[SegmentRecord]:
        """Writes the new deletions, and returns the segments that still hold something."""
        if self.base is None:
            return []
        records = []
        for segment in self.base.segments:
            record, gone = segment.record, self._gone.get(segment.record.name)
            if gone:
                folder = self.base.generation.segment_path(record)
                record = segment.write_deleted(folder, gone, number)
            if record.num_documents > record.num_deleted_documents:
                records.append(record)
        return records

    def _manifest(self, records: Sequence[SegmentRecord]) -> Manifest:
        documents = sum(one.num_documents - one.num_deleted_documents for one in records)
        return Manifest(
            format_version=FORMAT_VERSION,
            name=self.name,
            origin=self.origin,
            num_documents=documents,
            num_passages=sum(one.num_live_passages for one in records),
            next_passage=self._next_passage,
            corpus_fingerprint=str(self._fingerprint),
            scanned_at=self.scanned_at,
            roots=self.roots,
            excluded=tuple(sorted(self.excluded)),
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            specrag_version=_specrag_version(),
            segments=tuple(records),
        )


def _opened(
    path: Path, settings: VectorSettings | None, origin: IndexOrigin | None
) -> DocumentIndex | None:
    """Returns the index in use, None when there is none or it is damaged.

    Reading all bytes would make small changes slow; what is taken over into a new index is read.
    """
    try:
        contents = current_generation(path).manifest.origin != origin
        return DocumentIndex.open(path, settings, check=contents)
    except IndexFormatError:
        return None


def _same_encoder(index: DocumentIndex, origin: IndexOrigin) -> bool:
    found = index.manifest.origin
    made_by = (found.encoder_fingerprint, found.dimension)
    return made_by == (origin.encoder_fingerprint, origin.dimension)


def _specrag_version() -> str:
    try:
        return importlib.metadata.version("specrag")
    except importlib.metadata.PackageNotFoundError:
        return "source"  # run from a checkout that is not installed
