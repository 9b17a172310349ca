"""Generations of an index on disk: published whole or not at all, checked when read.

Depends on the layout.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from specrag.errors import IndexFormatError
from specrag.retrieval.layout import (
    BUILDING_PREFIX,
    CURRENT_NAME,
    NEXT_POINTER_NAME,
    SEGMENTS_NAME,
    Manifest,
    Pointer,
    SegmentRecord,
    file_record,
    is_deleted_name,
    manifest_name,
    manifest_number,
    segment_name,
    segment_number,
)

# Folders of format version 2, of which nothing is read any more.
_OLD_GENERATION = re.compile(r"gen-\d{6,9}")


class Generation(NamedTuple):
    """One published state of an index.

    Attributes:
        path: The index folder.
        number: Counts up with each state that is published.
        manifest: What the state consists of.
    """

    path: Path
    number: int
    manifest: Manifest

    def segment_path(self, segment: SegmentRecord) -> Path:
        """Returns the folder of a segment.

        Args:
            segment: One of the manifest.
        """
        return self.path / SEGMENTS_NAME / segment.name


def rebuild_hint(index: Path) -> str:
    """Returns the command that builds an index anew."""
    return f"build it again: specrag index build {index.name} --force"


def current_generation(index: Path) -> Generation:
    """Finds the generation that an index folder points to; its large files are not checked.

    Args:
        index: The index folder.

    Raises:
        IndexFormatError: There is no index, or pointer or manifest are damaged or foreign.
    """
    if not (index / CURRENT_NAME).is_file():
        raise IndexFormatError(
            f"no index in {str(index)!r}", hint=f"build it: specrag index build {index.name}"
        )
    try:
        return _read_current(index)
    except (OSError, ValueError) as error:
        raise IndexFormatError(
            f"cannot read the index in {str(index)!r}: {error}", hint=rebuild_hint(index)
        ) from error
    except IndexFormatError as error:
        message = f"the index in {str(index)!r} cannot be used: {error.message}"
        raise IndexFormatError(message, hint=rebuild_hint(index)) from error


def _read_current(index: Path) -> Generation:
    pointer = Pointer.from_text((index / CURRENT_NAME).read_text(encoding="ascii"))
    try:
        data = (index / pointer.manifest).read_bytes()
    except FileNotFoundError:
        # Two generations were published since the pointer was read, and this one was pruned.
        again = Pointer.from_text((index / CURRENT_NAME).read_text(encoding="ascii"))
        if again == pointer:
            raise
        return _read_current(index)
    if sha256(data).hexdigest() != pointer.manifest_sha256:
        raise IndexFormatError(f"{pointer.manifest} was altered after it was written")
    number = manifest_number(pointer.manifest)
    assert number is not None, "a pointer names a manifest"
    return Generation(index, number, Manifest.from_json(data))


def damaged_files(generation: Generation, *, contents: bool) -> Iterator[tuple[Path, str]]:
    """Yields each file of a generation that is not as its manifest says, and what is wrong.

    Args:
        generation: The generation.
        contents: Whether to read every byte; otherwise only lengths are compared.
    """
    for segment in generation.manifest.segments:
        folder = generation.segment_path(segment)
        for name, expected in segment.files.items():
            path = folder / name
            found = f"{path.stat().st_size} bytes" if path.is_file() else "no file"
            if found != f"{expected.size} bytes":
                yield path, f"should have {expected.size} bytes, found {found}"
            elif contents and file_record(path) != expected:
                yield path, "was altered after it was written: its SHA-256 differs"


def check_files(generation: Generation, *, contents: bool) -> None:
    """Compares the files of a generation with its manifest.

    Args:
        generation: The generation.
        contents: Whether to read every byte; otherwise only lengths are compared.

    Raises:
        IndexFormatError: A file is missing or altered.
    """
    for path, wrong in damaged_files(generation, contents=contents):
        raise IndexFormatError(f"{str(path)!r} {wrong}", hint=rebuild_hint(generation.path))


@contextmanager
def building_folder(index: Path) -> Iterator[Path]:
    """Makes the folder of a new segment; what is still there at the end is removed.

    Call it with the writer's lock held: folders of writers that died are removed, too.

    Args:
        index: The index folder.

    Yields:
        An empty folder inside the index folder.
    """
    for orphan in index.glob(f"{BUILDING_PREFIX}*"):
        shutil.rmtree(orphan, ignore_errors=True)
    folder = index / f"{BUILDING_PREFIX}{os.getpid()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def place_segment(index: Path, folder: Path) -> Path:
    """Moves a finished folder among the segments, where it counts for nothing until published.

    Args:
        index: The index folder.
        folder: A folder from ``building_folder``, complete.

    Returns:
        Where it is now.
    """
    segments = index / SEGMENTS_NAME
    segments.mkdir(exist_ok=True)
    for path in [*folder.iterdir(), folder]:
        force_to_disk(path)
    numbers = (segment_number(path.name) for path in segments.iterdir())
    target = segments / segment_name(1 + max((n for n in numbers if n is not None), default=0))
    folder.rename(target)
    force_to_disk(segments)
    return target


def publish(index: Path, number: int, manifest: Manifest) -> Generation:
    """Makes a manifest the one in use, in one atomic step.

    Readers see the old generation or the new one, also after a crash at any moment.

    Args:
        index: The index folder.
        number: Of the new generation, above all before it.
        manifest: Names segments whose files are all on disk.

    Returns:
        The generation now in use.
    """
    data = manifest.to_json()
    path = index / manifest_name(number)
    path.write_bytes(data)
    force_to_disk(path)
    _write_pointer(index, Pointer(path.name, sha256(data).hexdigest()))
    return Generation(index, number, manifest)


def next_number(index: Path) -> int:
    """Returns a number above those of all manifests, published or left by a writer that died.

    Args:
        index: The index folder.
    """
    return 1 + max(_manifests(index), default=0)


def prune(current: Generation, previous: Generation | None) -> None:
    """Removes what neither the generation in use nor the one before it needs.

    Args:
        current: The generation in use.
        previous: The one that was in use before; readers may be about to open its files.
    """
    index = current.path
    kept = [current] if previous is None else [current, previous]
    for number in _manifests(index).difference(one.number for one in kept):
        (index / manifest_name(number)).unlink(missing_ok=True)
    used: dict[str, set[str]] = {}
    for one in kept:
        for segment in one.manifest.segments:
            used.setdefault(segment.name, set()).update(segment.files)
    for folder in _subfolders(index / SEGMENTS_NAME):
        if folder.name not in used:
            shutil.rmtree(folder, ignore_errors=True)
            continue
        for path in folder.iterdir():
            if is_deleted_name(path.name) and path.name not in used[folder.name]:
                path.unlink(missing_ok=True)
    for folder in _subfolders(index):
        if _OLD_GENERATION.fullmatch(folder.name):
            shutil.rmtree(folder, ignore_errors=True)


def force_to_disk(path: Path) -> None:
    """Waits until a file or a folder's list of names is on the disk.

    Args:
        path: The file or folder.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _manifests(index: Path) -> set[int]:
    found = (manifest_number(path.name) for path in index.iterdir())
    return {number for number in found if number is not None}


def _subfolders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []


def _write_pointer(index: Path, pointer: Pointer) -> None:
    draft = index / NEXT_POINTER_NAME
    draft.write_text(pointer.to_text(), encoding="ascii")
    force_to_disk(draft)
    # The new manifest's name reaches the disk with the same call as the pointer's.
    draft.replace(index / CURRENT_NAME)
    force_to_disk(index)
