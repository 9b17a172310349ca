"""Merges segments: few large ones are searched faster than many small ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from specrag.retrieval.document import Passage
from specrag.retrieval.generation import building_folder, place_segment
from specrag.retrieval.layout import SEGMENTS_NAME, SegmentRecord
from specrag.retrieval.segment import Segment
from specrag.retrieval.segment_writer import SegmentWriter
from specrag.retrieval.vector_factory import VectorSettings

Vectors = npt.NDArray[np.float32]

MERGE_FACTOR = 8
"""Segments of about one size that are merged into one; as in a log-structured merge tree, each
passage is then copied about log(passages) / log(8) times in all."""

MAX_DELETED_SHARE = 0.25
"""A segment with more passages than this gone is written anew."""


def segments_to_merge(
    segments: Sequence[SegmentRecord], most_passages: int
) -> list[list[SegmentRecord]]:
    """Returns groups of segments that had better become one segment each.

    Args:
        segments: All segments of an index.
        most_passages: Most passages of a merged segment.
    """
    tiers: dict[int, list[SegmentRecord]] = {}
    worn: list[list[SegmentRecord]] = []
    for segment in segments:
        if segment.num_deleted_passages > MAX_DELETED_SHARE * segment.num_passages:
            worn.append([segment])
        elif segment.num_live_passages <= most_passages // MERGE_FACTOR:
            size = max(1, segment.num_live_passages)
            tiers.setdefault(int(math.log(size, MERGE_FACTOR)), []).append(segment)
    full = (
        tier[first : first + MERGE_FACTOR]
        for tier in tiers.values()
        for first in range(0, len(tier) - MERGE_FACTOR + 1, MERGE_FACTOR)
    )
    return [*worn, *full]


def segments_to_compact(
    segments: Sequence[SegmentRecord], most_passages: int
) -> list[list[SegmentRecord]]:
    """Returns groups of segments that make as few segments as go, without what is gone.

    Args:
        segments: All segments of an index.
        most_passages: Most passages of a merged segment.
    """
    groups: list[list[SegmentRecord]] = []
    room = 0
    for segment in segments:
        if not groups or segment.num_live_passages > room:
            groups.append([])
            room = most_passages
        groups[-1].append(segment)
        room -= segment.num_live_passages
    return [group for group in groups if len(group) > 1 or group[0].num_deleted_documents]


def merge_segments(
    index: Path,
    records: Sequence[SegmentRecord],
    dimension: int,
    settings: VectorSettings,
    *,
    progress: bool = False,
) -> SegmentRecord:
    """Writes what can be found in some segments into a new one, which counts once published.

    Args:
        index: The index folder.
        records: The segments.
        dimension: Length of the vectors.
        settings: How vectors are kept.
        progress: Whether to show progress bars on standard error.
    """
    with ExitStack() as stack:
        old: list[Segment] = []
        for record in records:
            old.append(Segment.open(index / SEGMENTS_NAME / record.name, record, settings))
            stack.callback(old[-1].close)
        folder = stack.enter_context(building_folder(index))
        writer = SegmentWriter(folder, dimension, settings)
        stack.callback(writer.close)
        for segment in old:
            _copy_documents(segment, writer)
        made = writer.finish(lambda passages: _vectors_in(old, passages), progress=progress)
        return replace(made, name=place_segment(index, folder).name)


def _copy_documents(segment: Segment, writer: SegmentWriter) -> None:
    """Copies what can be found in a segment; passages keep their ids."""
    files = {number: file for file, owned in segment.store.files() for number in owned}
    for info in segment.documents():
        passages = list(segment.store.passages(info.first_passage, info.num_passages))
        writer.put(segment.store.document(info.id), passages, files.get(info.number))


def _vectors_in(segments: Sequence[Segment], passages: Sequence[Passage]) -> Vectors:
    """Returns the vectors of passages that some segments hold, [num_passages, dimension]."""
    found: dict[int, Vectors] = {}
    for segment in segments:
        held = list(segment.store.find([passage.id for passage in passages]))
        if held:
            rows = segment.vectors.vectors_of(np.array(held, dtype=np.int64))
            found |= dict(zip(held, rows, strict=True))
    return np.stack([found[passage.id] for passage in passages])
