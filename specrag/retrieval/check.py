"""Finds what is wrong with an index on disk: altered bytes, and parts that do not fit together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from specrag.errors import IndexFormatError, InputError
from specrag.retrieval.generation import Generation, current_generation, damaged_files
from specrag.retrieval.layout import BUILDING_PREFIX, SegmentRecord
from specrag.retrieval.segment import Segment
from specrag.retrieval.vector_factory import VectorSettings


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong.

    Attributes:
        path: The file or folder.
        message: What is wrong with it.
    """

    path: Path
    message: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check found.

    Attributes:
        path: The index folder.
        problems: What is wrong; empty when nothing is.
        notes: What is odd and harmless.
        num_files: Files whose bytes were compared.
        num_bytes: Their lengths together.
    """

    path: Path
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    num_files: int
    num_bytes: int

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def check_index(path: Path, *, progress: bool = False) -> CheckReport:
    """Compares every byte of an index with its checksums, then its parts with each other.

    Args:
        path: The index folder.
        progress: Whether to show a progress bar on standard error.

    Raises:
        InputError: There is no index.
    """
    if not path.is_dir():
        raise InputError(
            f"there is no index in {str(path)!r}", hint="list them: specrag index info"
        )
    notes = tuple(
        f"{left.name} was left by a writer that died; the next one removes it"
        for left in sorted(path.glob(f"{BUILDING_PREFIX}*"))
    )
    try:
        generation = current_generation(path)
    except IndexFormatError as error:
        return CheckReport(path, (Problem(path, error.message),), notes, 0, 0)
    sizes = [record.size for one in generation.manifest.segments for record in one.files.values()]
    problems = tuple(_problems(generation, progress))
    return CheckReport(path, problems, notes, len(sizes), sum(sizes))


def _problems(generation: Generation, progress: bool) -> Iterator[Problem]:
    altered = [Problem(*found) for found in damaged_files(generation, contents=True)]
    yield from altered
    if altered:  # what does not fit together then follows from it
        return
    for record in tqdm(generation.manifest.segments, "checking", disable=not progress):
        folder = generation.segment_path(record)
        try:
            segment = Segment.open(folder, record, VectorSettings())
        except IndexFormatError as error:
            yield Problem(folder, error.message)
            continue
        try:
            yield from (Problem(folder, message) for message in _misfits(segment, record))
        finally:
            segment.close()
    manifest = generation.manifest
    live = sum(one.num_live_passages for one in manifest.segments)
    if live != manifest.num_passages:
        message = f"the manifest tells {manifest.num_passages} passages, its segments {live}"
        yield Problem(generation.path, message)


def _misfits(segment: Segment, record: SegmentRecord) -> Iterator[str]:
    wrong = segment.store.is_sound()
    if wrong is not None:
        yield f"SQLite finds its store damaged: {wrong}"
        return
    gone = (len(segment.tombstones), segment.tombstones.num_passages)
    if gone != (record.num_deleted_documents, record.num_deleted_passages):
        yield f"the manifest tells other deletions than the {gone[0]} documents that are marked"
    for info in segment.store.documents():
        text = segment.store.document_text(info.id)
        passages = list(segment.store.passages(info.first_passage, info.num_passages))
        if any(text[one.start : one.end] != one.text for one in passages):
            yield f"a passage of {info.id!r} is not what its document says"
        ids = np.array([one.id for one in passages], dtype=np.int64)
        try:
            segment.vectors.vectors_of(ids)
        except InputError as error:
            yield f"{info.id!r}: {error.message}"
