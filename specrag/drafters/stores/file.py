"""A token datastore on disk: a manifest that names memory-mapped arrays, replaced in one step.

```
FOLDER/manifest.json                  what it holds; file, type and SHA-256 of each array
FOLDER/tokens-<digest>.bin            the texts, a separator before and after each
FOLDER/suffixes-<digest>.bin          positions, sorted by the tokens before them
FOLDER/pairs-<digest>.bin, starts-<digest>.bin    where each pair of tokens starts in these
FOLDER/.building-*                    files that are being written, or were when a builder died
```
"""

from __future__ import annotations

import hashlib
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from specrag.drafters.stores.arrays import MAX_MATCH, DatastoreArrays
from specrag.drafters.stores.manifest import (
    ARRAY_NAMES,
    FORMAT_VERSION,
    ArrayFile,
    DatastoreManifest,
    DatastoreOrigin,
    array_file_name,
)
from specrag.drafters.stores.suffix_array import Array
from specrag.drafters.stores.token_datastore import TokenDatastore
from specrag.errors import IndexFormatError, InputError
from specrag.home import home

MANIFEST_NAME = "manifest.json"

_BUILDING_PREFIX = ".building-"


def datastores_dir(name: str) -> Path:
    """Returns the folder of the datastores of an index, one for each tokenizer.

    Args:
        name: Name of the index.
    """
    return home() / "datastores" / name


def write_datastore(
    folder: Path, arrays: DatastoreArrays, origin: DatastoreOrigin
) -> DatastoreManifest:
    """Writes a datastore, replacing one that is there in one atomic step.

    Readers see the old one or the new one, also after a crash at any moment, and one that is open
    stays usable. The files of the one replaced are kept until the next is written, for readers
    that have read its manifest only. One builder at a time may write to a folder.

    Args:
        folder: Where; made if it does not exist.
        arrays: The content.
        origin: What it was made from.

    Raises:
        InputError: The folder cannot be written to.
    """
    try:
        previous = _files_in_use(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for orphan in folder.glob(f"{_BUILDING_PREFIX}*"):
            shutil.rmtree(orphan, ignore_errors=True)
        building = folder / f"{_BUILDING_PREFIX}{os.getpid()}"
        building.mkdir()
        try:
            manifest = _write_files(folder, building, arrays, origin)
        finally:
            shutil.rmtree(building, ignore_errors=True)
        kept = previous | {record.file for record in manifest.files.values()}
        for path in folder.glob("*.bin"):
            if path.name not in kept:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot write a datastore to {str(folder)!r}: {error.strerror or error}",
            hint="make room there, or set SPECRAG_HOME to another folder",
        ) from error
    return manifest


def read_manifest(folder: Path) -> DatastoreManifest:
    """Reads what a datastore holds; its arrays are not looked at.

    Args:
        folder: The folder.

    Raises:
        IndexFormatError: There is no datastore, or its manifest is damaged or foreign.
    """
    try:
        data = (folder / MANIFEST_NAME).read_bytes()
    except OSError as error:
        raise IndexFormatError(
            f"no datastore in {str(folder)!r}: {error.strerror}",
            hint="build one: specrag index build NAME --datastore",
        ) from error
    try:
        return DatastoreManifest.from_json(data)
    except IndexFormatError as error:
        raise _unusable(folder, error.message) from error


def open_datastore(
    folder: Path, manifest: DatastoreManifest | None = None, *, check_contents: bool = True
) -> TokenDatastore:
    """Maps a datastore into memory.

    Args:
        folder: The folder.
        manifest: Its manifest, when that was read already.
        check_contents: Whether to compare every byte with the digests, which takes about a second
            for a gigabyte; otherwise only lengths are compared.

    Raises:
        IndexFormatError: There is no datastore, or it is damaged or foreign.
    """
    made = manifest or read_manifest(folder)
    arrays = DatastoreArrays(
        **{name: _map(folder, made.files[name], check_contents) for name in ARRAY_NAMES}
    )
    if len(arrays.starts) != len(arrays.pairs) + 1 or arrays.starts[-1] != len(arrays.suffixes):
        raise _unusable(folder, "its arrays do not fit each other")
    return TokenDatastore(arrays, made.vocab_size)


def is_complete(folder: Path, manifest: DatastoreManifest) -> bool:
    """Tells whether the files of a datastore are there in full length.

    Args:
        folder: The folder.
        manifest: Its manifest.
    """
    found = [(folder / record.file, record.size) for record in manifest.files.values()]
    return all(path.is_file() and path.stat().st_size == size for path, size in found)


def _files_in_use(folder: Path) -> set[str]:
    try:
        return {record.file for record in read_manifest(folder).files.values()}
    except IndexFormatError:
        return set()


def _write_files(
    folder: Path, building: Path, arrays: DatastoreArrays, origin: DatastoreOrigin
) -> DatastoreManifest:
    manifest = DatastoreManifest(
        format_version=FORMAT_VERSION,
        **origin._asdict(),
        num_tokens=arrays.num_tokens,
        num_texts=arrays.num_texts,
        max_match=MAX_MATCH,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        files={
            name: _write_array(folder, building / name, array) for name, array in arrays.items()
        },
    )
    draft = building / MANIFEST_NAME
    draft.write_bytes(manifest.to_json())
    _force_to_disk(draft)
    _force_to_disk(folder)
    draft.replace(folder / MANIFEST_NAME)
    _force_to_disk(folder)
    return manifest


def _write_array(folder: Path, draft: Path, array: Array) -> ArrayFile:
    stored = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    stored.tofile(draft)
    _force_to_disk(draft)
    digest = hashlib.sha256(stored.data).hexdigest()
    file = array_file_name(draft.name, digest)
    draft.replace(folder / file)
    return ArrayFile(file, f"<u{stored.itemsize}", digest, stored.nbytes)


def _map(folder: Path, record: ArrayFile, check_contents: bool) -> Array:
    try:
        array = np.memmap(folder / record.file, dtype=record.dtype, mode="r")
    except (OSError, ValueError) as error:  # also when its length is 0 or no multiple of an item
        raise _unusable(folder, f"cannot map {record.file}: {error}") from error
    if array.nbytes != record.size:
        raise _unusable(
            folder, f"{record.file} should have {record.size} bytes, found {array.nbytes}"
        )
    if check_contents and hashlib.sha256(array.data).hexdigest() != record.sha256:
        raise _unusable(folder, f"{record.file} was altered after it was written")
    return array


def _unusable(folder: Path, reason: str) -> IndexFormatError:
    return IndexFormatError(
        f"the datastore in {str(folder)!r} cannot be used: {reason}",
        hint="build it again: specrag index build NAME --datastore --force",
    )


def _force_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
