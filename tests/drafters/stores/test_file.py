from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from specrag.drafters.stores import file as datastore_file
from specrag.drafters.stores.arrays import DatastoreArrays
from specrag.drafters.stores.file import (
    MANIFEST_NAME,
    datastores_dir,
    is_complete,
    open_datastore,
    read_manifest,
    write_datastore,
)
from specrag.drafters.stores.manifest import (
    ARRAY_NAMES,
    DatastoreManifest,
    DatastoreOrigin,
    _digest,
)
from specrag.drafters.stores.token_datastore import TokenDatastore
from specrag.errors import IndexFormatError, InputError

ORIGIN = DatastoreOrigin("manuals", "v1", "abc", "toy", 10)
OLD, NEW = [(1, 2, 3, 4), (5, 1, 2)], [(1, 2, 7), (8, 9)]


def write(folder: Path, texts: Sequence[Sequence[int]] = OLD) -> DatastoreManifest:
    return write_datastore(folder, DatastoreArrays.build(texts, ORIGIN.vocab_size), ORIGIN)


def after_the_pair(store: TokenDatastore) -> list[list[int]]:
    return store.continuations(store.longest_match((1, 2)), 9, 9)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "made/here")
    return tmp_path / "made/here"


def test_what_was_written_is_read(folder: Path) -> None:
    store = open_datastore(folder)

    assert after_the_pair(store) == [[3, 4]]
    assert after_the_pair(open_datastore(folder, check_contents=False)) == [[3, 4]]
    assert after_the_pair(open_datastore(folder, read_manifest(folder))) == [[3, 4]]
    assert not any(array.flags.writeable for array in (store._tokens, store._suffixes))


def test_the_manifest_says_what_is_in_it(folder: Path) -> None:
    manifest = read_manifest(folder)

    assert manifest.origin == ORIGIN
    assert (manifest.num_texts, manifest.num_tokens, manifest.max_match) == (2, 7, 32)
    assert manifest.created_at.startswith("20")
    assert set(manifest.files) == set(ARRAY_NAMES)
    sizes = {path.name: path.stat().st_size for path in folder.glob("*.bin")}
    assert sizes == {record.file: record.size for record in manifest.files.values()}
    assert manifest.num_bytes == sum(sizes.values())
    assert DatastoreManifest.from_json(manifest.to_json()) == manifest
    assert [path.name for path in folder.glob(".*")] == []


def test_the_same_texts_make_the_same_files(folder: Path, tmp_path: Path) -> None:
    assert write(tmp_path / "again").files == read_manifest(folder).files


def test_datastores_lie_in_the_home(isolated_home: Path) -> None:
    assert datastores_dir("manuals") == isolated_home / "datastores" / "manuals"


DAMAGE: dict[str, Callable[[Path], object]] = {
    "first byte": lambda path: flip(path, 0),
    "last byte": lambda path: flip(path, -1),
    "short": lambda path: path.write_bytes(path.read_bytes()[:-4]),
    "odd": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "long": lambda path: path.write_bytes(path.read_bytes() + bytes(4)),
    "empty": lambda path: path.write_bytes(b""),
    "gone": lambda path: path.unlink(),
}


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("contents", [True, False])
@pytest.mark.parametrize("name", ARRAY_NAMES)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_array_is_refused(folder: Path, name: str, damage: str, contents: bool) -> None:
    manifest = read_manifest(folder)
    path = folder / manifest.files[name].file
    DAMAGE[damage](path)

    with pytest.raises(IndexFormatError) as caught:
        open_datastore(folder, check_contents=contents or "byte" in damage)
    assert str(folder) in caught.value.message
    assert path.name in caught.value.message
    assert "specrag index build NAME --datastore --force" in str(caught.value.hint)
    assert is_complete(folder, manifest) == ("byte" in damage)


def test_every_byte_of_the_manifest_counts(folder: Path) -> None:
    data = bytearray((folder / MANIFEST_NAME).read_bytes())
    for place, byte in enumerate(bytes(data)):
        if not bytes([byte]).isspace():  # a line break more or less is no damage
            data[place] ^= 1
            with pytest.raises(IndexFormatError):
                DatastoreManifest.from_json(bytes(data))
            data[place] = byte


def test_without_contents_only_lengths_are_compared(folder: Path) -> None:
    flip(folder / read_manifest(folder).files["tokens"].file, 2)

    open_datastore(folder, check_contents=False)
    with pytest.raises(IndexFormatError, match="tokens-.* was altered after it was written"):
        open_datastore(folder)


def signed(content: dict[str, Any]) -> bytes:
    content.pop("sha256", None)
    return json.dumps({**content, "sha256": _digest(content)}).encode()


FOREIGN: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "version": (lambda c: c.update(format_version=2), "format version 2; this specrag reads 1"),
    "true": (lambda c: c.update(format_version=True), "format version True"),
    "unknown key": (lambda c: c.update(num_token=1), "did you mean 'num_tokens'"),
    "missing key": (lambda c: c.pop("num_texts"), "num_texts .* must be of type int, got None"),
    "wrong type": (lambda c: c.update(vocab_size="10"), "vocab_size .* type int, got '10'"),
    "bool": (lambda c: c.update(vocab_size=True), "vocab_size .* type int, got True"),
    "no files": (lambda c: c.update(files={}), "must list the arrays"),
    "no record": (lambda c: c["files"].update(tokens={}), "damaged file list"),
    "no mapping": (lambda c: c["files"].update(tokens=5), "damaged file list"),
    "dtype": (lambda c: c["files"]["tokens"].update(dtype="O"), "damaged record of 'tokens'"),
    "other file": (
        lambda c: c["files"]["tokens"].update(file="../tokens.bin"),
        "damaged record of 'tokens'",
    ),
    "way out": (
        lambda c: c["files"]["tokens"].update(file="tokens-/../../../x.bin", sha256="/../../../x"),
        "damaged record of 'tokens'",
    ),
    "no digest": (
        lambda c: c["files"]["tokens"].update(file="tokens-1.bin", sha256=1),
        "tokens-1.bin",
    ),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_foreign_manifest_is_refused(folder: Path, case: str) -> None:
    change, message = FOREIGN[case]
    content = json.loads((folder / MANIFEST_NAME).read_bytes())
    change(content)
    (folder / MANIFEST_NAME).write_bytes(signed(content))

    with pytest.raises(IndexFormatError, match=message):
        open_datastore(folder)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"5", b"\xff", b"null"])
def test_what_is_no_manifest_is_refused(folder: Path, data: bytes) -> None:
    (folder / MANIFEST_NAME).write_bytes(data)
    with pytest.raises(IndexFormatError, match="cannot be used: "):
        read_manifest(folder)


def test_arrays_that_do_not_fit_each_other_are_refused(folder: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", [(1, 2, 3, 4, 5, 6, 7, 8, 9)])
    content = json.loads((folder / MANIFEST_NAME).read_bytes())
    content["files"]["starts"] = other.files["starts"]._asdict()
    (folder / MANIFEST_NAME).write_bytes(signed(content))
    name = other.files["starts"].file
    (folder / name).write_bytes((tmp_path / "other" / name).read_bytes())

    with pytest.raises(IndexFormatError, match="its arrays do not fit each other"):
        open_datastore(folder)


def test_a_missing_datastore_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(IndexFormatError, match="no datastore in .*nowhere") as caught:
        open_datastore(tmp_path / "nowhere")
    assert "specrag index build NAME --datastore" in str(caught.value.hint)


def test_readers_keep_what_they_have_when_it_is_replaced(folder: Path) -> None:
    opened, read = open_datastore(folder), read_manifest(folder)
    write(folder, NEW)

    assert after_the_pair(opened) == [[3, 4]]
    assert after_the_pair(open_datastore(folder, read)) == [[3, 4]]
    assert after_the_pair(open_datastore(folder)) == [[7]]


def test_only_the_files_in_use_and_those_before_are_kept(folder: Path) -> None:
    first = read_manifest(folder)
    for texts in (NEW, [(4, 4, 4)]):
        current, previous = write(folder, texts), read_manifest(folder)
    files = {record.file for made in (current, previous) for record in made.files.values()}

    assert current == previous == read_manifest(folder)
    assert not is_complete(folder, first)
    assert files <= {path.name for path in folder.glob("*.bin")}
    assert len(list(folder.glob("*.bin"))) <= 8


def test_readers_find_a_whole_datastore_at_any_time(folder: Path) -> None:
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            assert after_the_pair(open_datastore(folder)) in ([[3, 4]], [[7]])

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            for number in range(20):
                write(folder, (NEW, OLD)[number % 2])
        finally:
            done.set()
        for reader in readers:
            reader.result()


@pytest.mark.parametrize("step", range(8))
def test_a_builder_that_dies_leaves_a_whole_datastore(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """It dies when it has forced so many of its seven files and folders to disk."""
    before, force, steps = read_manifest(folder), datastore_file._force_to_disk, iter(range(9))

    def dying(path: Path) -> None:
        if next(steps) == step:
            raise KeyboardInterrupt
        force(path)

    with monkeypatch.context() as patched:
        patched.setattr(datastore_file, "_force_to_disk", dying)
        if step < 7:
            with pytest.raises(KeyboardInterrupt):
                write(folder, NEW)
        else:
            write(folder, NEW)
    assert (read_manifest(folder).files == before.files) == (step < 6)
    assert after_the_pair(open_datastore(folder)) == ([[3, 4]] if step < 6 else [[7]])
    write(folder, NEW)
    assert after_the_pair(open_datastore(folder)) == [[7]]


def test_what_a_dead_builder_left_is_removed(folder: Path) -> None:
    (folder / ".building-1").mkdir()
    (folder / ".building-1/tokens").write_bytes(b"x")
    (folder / "tokens-000000000000.bin").write_bytes(b"x")
    write(folder)

    assert {path.name for path in folder.iterdir()} == {
        MANIFEST_NAME,
        *(record.file for record in read_manifest(folder).files.values()),
    }


def test_a_place_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot write a datastore to .*file") as caught:
        write(tmp_path / "file" / "below")
    assert "SPECRAG_HOME" in str(caught.value.hint)
