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
    next_number,
    place_segment,
    prune,
    publish,
)
from specrag.retrieval.layout import (
    CURRENT_NAME,
    FORMAT_VERSION,
    PASSAGES_NAME,
    SEGMENTS_NAME,
    TERMS_NAME,
    VECTORS_NAME,
    FileRecord,
    IndexOrigin,
    Manifest,
    Pointer,
    SegmentRecord,
)

NAMES = (VECTORS_NAME, PASSAGES_NAME, TERMS_NAME)
ORIGIN = IndexOrigin("e", "f", 1, 1, 0, 1, 1, "", "auto")


def manifest(segment: str = "seg-000001", content: bytes = b"old") -> Manifest:
    record = FileRecord(sha256(content).hexdigest(), len(content))
    one = SegmentRecord(segment, 1, 1, 0, 0, "", dict.fromkeys(NAMES, record))
    return Manifest(FORMAT_VERSION, "a", ORIGIN, 1, 1, 1, "c", 0, (), (), "now", "0", (one,))


def make(index: Path, content: bytes = b"old") -> Generation:
    with building_folder(index) as folder:
        for name in NAMES:
            (folder / name).write_bytes(content)
        place = place_segment(index, folder)
        return publish(index, next_number(index), manifest(place.name, content))


def place_of(made: Generation) -> Path:
    return made.segment_path(made.manifest.segments[0])


def names(index: Path) -> list[str]:
    return sorted(path.name for path in index.iterdir())


def test_a_published_generation_is_the_current_one(tmp_path: Path) -> None:
    made = make(tmp_path)
    assert current_generation(tmp_path) == made == (tmp_path, 1, manifest())
    check_files(made, contents=True)
    assert names(tmp_path) == [CURRENT_NAME, "manifest-000001.json", SEGMENTS_NAME]
    assert names(tmp_path / SEGMENTS_NAME) == ["seg-000001"]


def test_generations_count_up_and_the_last_two_are_kept(tmp_path: Path) -> None:
    previous = None
    for _ in range(4):
        made = make(tmp_path)
        prune(made, previous)
        previous = made
    assert names(tmp_path / SEGMENTS_NAME) == ["seg-000003", "seg-000004"]
    assert names(tmp_path)[1:3] == ["manifest-000003.json", "manifest-000004.json"]


def test_what_was_never_pointed_to_is_removed(tmp_path: Path) -> None:
    first = make(tmp_path)
    (tmp_path / SEGMENTS_NAME / "seg-000002").mkdir()  # its writer died before it published
    (tmp_path / "manifest-000002.json").write_text("{}")
    (tmp_path / "gen-000007").mkdir()  # of an older format
    (tmp_path / SEGMENTS_NAME / "seg-000001" / "deleted-000002.npy").write_text("x")
    third = make(tmp_path)
    assert third.number == 3
    prune(third, first)
    assert names(tmp_path / SEGMENTS_NAME) == ["seg-000001", "seg-000003"]
    assert names(tmp_path) == [
        CURRENT_NAME, "manifest-000001.json", "manifest-000003.json", SEGMENTS_NAME,
    ]  # fmt: skip
    check_files(first, contents=True)
    assert "deleted-000002.npy" not in names(place_of(first))


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
@pytest.mark.parametrize("moment", range(1, 9))
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
    assert (place_of(found) / VECTORS_NAME).read_bytes() == (b"new" if moment == 8 else b"old")
    newer = make(tmp_path, b"newer")
    assert current_generation(tmp_path) == newer
    prune(newer, found)
    check_files(found, contents=True)


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
    assert sorted(order[:3]) == sorted(NAMES)
    assert order[3].startswith(".building-")
    assert order[4:] == [
        SEGMENTS_NAME, "manifest-000001.json", ".CURRENT.new", "-> CURRENT", tmp_path.name,
    ]  # fmt: skip


def test_a_missing_index_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(IndexFormatError, match="no index in") as caught:
        current_generation(tmp_path / "handbook")
    assert caught.value.hint == "build it: specrag index build handbook"


@pytest.mark.parametrize("content", [b"", b"manifest-000001.json\n", b"\xff\xfe"])
def test_a_damaged_pointer_is_refused(tmp_path: Path, content: bytes) -> None:
    make(tmp_path)
    (tmp_path / CURRENT_NAME).write_bytes(content)
    with pytest.raises(IndexFormatError) as caught:
        current_generation(tmp_path)
    assert f"specrag index build {tmp_path.name} --force" in str(caught.value.hint)


def test_a_pointer_to_a_missing_manifest_is_refused(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "manifest-000001.json").rename(tmp_path / "manifest-000002.json")
    with pytest.raises(IndexFormatError, match="No such file .*manifest-000001") as caught:
        current_generation(tmp_path)
    assert "--force" in str(caught.value.hint)


def test_a_pointer_to_another_manifest_is_refused(tmp_path: Path) -> None:
    make(tmp_path, b"old")
    make(tmp_path, b"new")
    pointer = Pointer.from_text((tmp_path / CURRENT_NAME).read_text())
    other = pointer._replace(manifest="manifest-000001.json")
    (tmp_path / CURRENT_NAME).write_text(other.to_text())
    with pytest.raises(IndexFormatError, match="manifest-000001.json was altered"):
        current_generation(tmp_path)


def test_a_manifest_pruned_between_two_reads_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, b"old")
    stale = (tmp_path / CURRENT_NAME).read_text()
    (tmp_path / "manifest-000001.json").unlink()
    newer = make(tmp_path, b"new")
    assert newer.number == 1  # a number that nobody uses may be used again
    newer = make(tmp_path, b"new")
    (tmp_path / "manifest-000001.json").unlink()
    real, seen = Path.read_text, [stale]

    def read_text(self: Path, encoding: str | None = None) -> str:
        return seen.pop() if seen else real(self, encoding=encoding)

    monkeypatch.setattr(Path, "read_text", read_text)
    assert current_generation(tmp_path) == newer


def test_another_format_version_is_refused(tmp_path: Path) -> None:
    make(tmp_path)
    future = dataclasses.replace(manifest(), format_version=FORMAT_VERSION + 1)
    publish(tmp_path, 2, future)
    with pytest.raises(
        IndexFormatError,
        match=f"has format version {FORMAT_VERSION + 1}; this specrag reads {FORMAT_VERSION}",
    ) as caught:
        current_generation(tmp_path)
    assert "--force" in str(caught.value.hint)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("contents", [True, False])
@pytest.mark.parametrize("content", [b"ol", b"older", b"", None])
def test_files_of_another_length_are_refused(
    tmp_path: Path, name: str, contents: bool, content: bytes | None
) -> None:
    made = make(tmp_path)
    (place_of(made) / name).unlink()
    if content is not None:
        (place_of(made) / name).write_bytes(content)
    with pytest.raises(IndexFormatError, match=f"{name}' should have 3 bytes, found") as caught:
        check_files(made, contents=contents)
    assert "--force" in str(caught.value.hint)


def test_altered_bytes_are_found_when_contents_are_read(tmp_path: Path) -> None:
    made = make(tmp_path)
    (place_of(made) / VECTORS_NAME).write_bytes(b"odd")
    check_files(made, contents=False)
    with pytest.raises(IndexFormatError, match="its SHA-256 differs"):
        check_files(made, contents=True)
