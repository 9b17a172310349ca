"""Generations of an index on disk: published whole or not at all, checked when read.

Depends on the layout.
"""

from __future__ import annotations

import os
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
    MANIFEST_NAME,
    NEXT_POINTER_NAME,
    Manifest,
    Pointer,
    file_record,
    generation_name,
    generation_number,
)


class Generation(NamedTuple):
    """The generation in use.

    Attributes:
        path: Its folder.
        manifest: What it says of itself.
    """

    path: Path
    manifest: Manifest


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
        pointer = Pointer.from_text((index / CURRENT_NAME).read_text(encoding="ascii"))
        return _read_generation(index / pointer.generation, pointer.manifest_sha256)
    except (OSError, ValueError) as error:
        raise IndexFormatError(
            f"cannot read the index in {str(index)!r}: {error}", hint=rebuild_hint(index)
        ) from error
    except IndexFormatError as error:
        message = f"the index in {str(index)!r} cannot be used: {error.message}"
        raise IndexFormatError(message, hint=rebuild_hint(index)) from error


def _read_generation(path: Path, manifest_sha256: str) -> Generation:
    data = (path / MANIFEST_NAME).read_bytes()
    if sha256(data).hexdigest() != manifest_sha256:
        raise IndexFormatError(f"{path.name}/{MANIFEST_NAME} was altered after it was built")
    return Generation(path, Manifest.from_json(data))


def check_files(generation: Generation, *, contents: bool) -> None:
    """Compares the files of a generation with its manifest.

    Args:
        generation: The generation.
        contents: Whether to read every byte; otherwise only lengths are compared.

    Raises:
        IndexFormatError: A file is missing or altered.
    """
    index = generation.path.parent
    for name, expected in generation.manifest.files.items():
        path = generation.path / name
        found = f"{path.stat().st_size} bytes" if path.is_file() else "no file"
        if found != f"{expected.size} bytes":
            raise IndexFormatError(
                f"{str(path)!r} should have {expected.size} bytes, found {found}",
                hint=rebuild_hint(index),
            )
        if contents and file_record(path) != expected:
            raise IndexFormatError(
                f"{str(path)!r} was altered after it was built: its SHA-256 differs",
                hint=rebuild_hint(index),
            )


@contextmanager
def building_folder(index: Path) -> Iterator[Path]:
    """Makes the folder of a new generation; what is still there at the end is removed.

    Call it with the builder's lock held: folders of builders that died are removed, too.

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


def publish(index: Path, folder: Path, manifest: Manifest) -> Generation:
    """Makes a finished folder the generation in use, in one atomic step.

    Readers see the old generation or the new one, also after a crash at any moment.

    Args:
        index: The index folder.
        folder: A folder from ``building_folder`` with every file of the manifest in it.
        manifest: The manifest, which is written here.

    Returns:
        The generation now in use.
    """
    data = manifest.to_json()
    (folder / MANIFEST_NAME).write_bytes(data)
    for path in [*folder.iterdir(), folder]:
        _force_to_disk(path)
    target = index / generation_name(max(_numbers(index), default=0) + 1)
    folder.rename(target)
    _force_to_disk(index)
    _write_pointer(index, Pointer(target.name, sha256(data).hexdigest()))
    return Generation(target, manifest)


def prune(index: Path, current: Generation, previous: Path | None) -> None:
    """Removes all generations but the one in use and the one before it.

    Args:
        index: The index folder.
        current: The generation in use.
        previous: The generation that was in use before; readers may still have it open.
    """
    for number in _numbers(index):
        path = index / generation_name(number)
        if path not in (current.path, previous):
            shutil.rmtree(path, ignore_errors=True)


def _numbers(index: Path) -> list[int]:
    found = (generation_number(path.name) for path in index.iterdir() if path.is_dir())
    return [number for number in found if number is not None]


def _write_pointer(index: Path, pointer: Pointer) -> None:
    draft = index / NEXT_POINTER_NAME
    draft.write_text(pointer.to_text(), encoding="ascii")
    _force_to_disk(draft)
    draft.replace(index / CURRENT_NAME)
    _force_to_disk(index)


def _force_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
