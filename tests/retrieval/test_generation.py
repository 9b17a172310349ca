from __future__ import annotations

import dataclasses
import os
from hashlib import sha256
from pathlib import Path

import pytest

from specrag.errors import IndexFormatError
from specrag.retrieval.generation import (
    Generation,
    building_folder,
    check_files,
    current_generation,
    prune,
    publish,
)
from specrag.retrieval.layout import (
    CURRENT_NAME,
    FORMAT_VERSION,
    MANIFEST_NAME,
    PASSAGES_NAME,
    VECTORS_NAME,
    FileRecord,
    Manifest,
    Pointer,
)


def manifest(content: bytes = b"old") -> Manifest:
    record = FileRecord(sha256(content).hexdigest(), len(content))
    files = {VECTORS_NAME: record, PASSAGES_NAME: record}
    return Manifest(FORMAT_VERSION, "a", "e", "f", 1, 1, 1, 1, 0, 1, "c", "now", "0", files)


def make(index: Path, content: bytes = b"old") -> Generation:
    with building_folder(index) as folder:
        for name in (VECTORS_NAME, PASSAGES_NAME):
            (folder / name).write_bytes(content)
        return publish(index, folder, manifest(content))


def names(index: Path) -> list[str]:
    return sorted(path.name for path in index.iterdir())


def test_a_published_generation_is_the_current_one(tmp_path: Path) -> None:
    made = make(tmp_path)
    assert current_generation(tmp_path) == made == (tmp_path / "gen-000001", manifest())
    check_files(made, contents=True)
    assert names(tmp_path) == [CURRENT_NAME, "gen-000001"]


def test_generations_count_up_and_the_last_two_are_kept(tmp_path: Path) -> None:
    previous = None
    for _ in range(4):
        made = make(tmp_path)
        prune(tmp_path, made, previous)
        previous = made.path
    assert names(tmp_path) == [CURRENT_NAME, "gen-000003", "gen-000004"]


def test_a_generation_that_was_never_pointed_to_is_removed(tmp_path: Path) -> None:
    first = make(tmp_path)
    (tmp_path / "gen-000002").mkdir()  # its builder died before it could move the pointer
    third = make(tmp_path)
    prune(tmp_path, third, first.path)
    assert names(tmp_path) == [CURRENT_NAME, "gen-000001", "gen-000003"]


def test_folders_of_dead_builders_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".building-123").mkdir()
    (tmp_path / ".building-123" / "vectors.faiss").write_text("half")
    with building_folder(tmp_path) as folder:
        assert names(tmp_path) == [folder.name]


def test_a_failed_build_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail() -> None:
        with building_folder(tmp_path) as folder:
            (folder / "half").write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert names(tmp_path) == []


@pytest.mark.parametrize("function", ["fsync", "open", "close"])
@pytest.mark.parametrize("moment", range(1, 8))
def test_an_interruption_at_any_moment_leaves_a_whole_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, moment: int
) -> None:
    make(tmp_path, b"old")
    real = getattr(os, function)
    calls = 0

    def interrupted(*args: int) -> object:
        nonlocal calls
        calls += 1
        if calls == moment:
            raise KeyboardInterrupt
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(os, function, interrupted)
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path, b"new")
    found = current_generation(tmp_path)
    check_files(found, contents=True)
    assert (found.path / VECTORS_NAME).read_bytes() == (b"new" if moment == 7 else b"old")
    newer = make(tmp_path, b"newer")
    assert current_generation(tmp_path) == newer


def test_files_reach_the_disk_before_the_pointer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def recorded_fsync(descriptor: int) -> None:
        order.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    def recorded_replace(self: Path, target: Path) -> Path:
        order.append(f"-> {target.name}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(Path, "replace", recorded_replace)
    make(tmp_path)
    assert sorted(order[:3]) == sorted([VECTORS_NAME, PASSAGES_NAME, MANIFEST_NAME])
    assert order[3].startswith(".building-")
    assert order[4:] == [tmp_path.name, ".CURRENT.new", "-> CURRENT", tmp_path.name]


def test_a_missing_index_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(IndexFormatError, match="no index in") as caught:
        current_generation(tmp_path / "handbook")
    assert caught.value.hint == "build it: specrag index build handbook"


@pytest.mark.parametrize("content", [b"", b"gen-000001\n", b"\xff\xfe"])
def test_a_damaged_pointer_is_refused(tmp_path: Path, content: bytes) -> None:
    make(tmp_path)
    (tmp_path / CURRENT_NAME).write_bytes(content)
    with pytest.raises(IndexFormatError) as caught:
        current_generation(tmp_path)
    assert f"specrag index build {tmp_path.name} --force" in str(caught.value.hint)


def test_a_pointer_to_a_missing_generation_is_refused(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "gen-000001").rename(tmp_path / "gen-000002")
    with pytest.raises(IndexFormatError, match="No such file .*gen-000001") as caught:
        current_generation(tmp_path)
    assert "--force" in str(caught.value.hint)


def test_a_pointer_to_another_generation_is_refused(tmp_path: Path) -> None:
    make(tmp_path, b"old")
    make(tmp_path, b"new")
    pointer = Pointer.from_text((tmp_path / CURRENT_NAME).read_text())
    (tmp_path / CURRENT_NAME).write_text(pointer._replace(generation="gen-000001").to_text())
    with pytest.raises(IndexFormatError, match="gen-000001/manifest.json was altered"):
        current_generation(tmp_path)


def test_another_format_version_is_refused(tmp_path: Path) -> None:
    with building_folder(tmp_path) as folder:
        future = dataclasses.replace(manifest(), format_version=FORMAT_VERSION + 1)
        publish(tmp_path, folder, future)
    with pytest.raises(
        IndexFormatError,
        match=f"has format version {FORMAT_VERSION + 1}; this specrag reads {FORMAT_VERSION}",
    ) as caught:
        current_generation(tmp_path)
    assert "--force" in str(caught.value.hint)


@pytest.mark.parametrize("name", [VECTORS_NAME, PASSAGES_NAME])
@pytest.mark.parametrize("contents", [True, False])
@pytest.mark.parametrize("content", [b"ol", b"older", b"", None])
def test_files_of_another_length_are_refused(
    tmp_path: Path, name: str, contents: bool, content: bytes | None
) -> None:
    made = make(tmp_path)
    (made.path / name).unlink()
    if content is not None:
        (made.path / name).write_bytes(content)
    with pytest.raises(IndexFormatError, match=f"{name}' should have 3 bytes, found") as caught:
        check_files(made, contents=contents)
    assert "--force" in str(caught.value.hint)


def test_altered_bytes_are_found_when_contents_are_read(tmp_path: Path) -> None:
    made = make(tmp_path)
    (made.path / VECTORS_NAME).write_bytes(b"odd")
    check_files(made, contents=False)
    with pytest.raises(IndexFormatError, match="its SHA-256 differs"):
        check_files(made, contents=True)
