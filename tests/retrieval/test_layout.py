from __future__ import annotations

import dataclasses
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from specrag.errors import IndexFormatError
from specrag.retrieval.layout import (
    FORMAT_VERSION,
    PASSAGES_NAME,
    TERMS_NAME,
    VECTORS_NAME,
    FileRecord,
    IndexOrigin,
    Manifest,
    Pointer,
    SegmentRecord,
    deleted_name,
    file_record,
    is_deleted_name,
    manifest_name,
    manifest_number,
    segment_name,
    segment_number,
)

FILES = {
    VECTORS_NAME: FileRecord("a" * 64, 10),
    PASSAGES_NAME: FileRecord("b" * 64, 20),
    TERMS_NAME: FileRecord("c" * 64, 30),
    "deleted-000002.npy": FileRecord("d" * 64, 40),
}
SEGMENT = SegmentRecord("seg-000001", 3, 6, 1, 1, "deleted-000002.npy", FILES)
MANIFEST = Manifest(
    format_version=FORMAT_VERSION,
    name="small",
    origin=IndexOrigin("hashing-64", "hashing-v1:64:512", 64, 20, 5, 1, 1, "", "auto"),
    num_documents=2,
    num_passages=5,
    next_passage=6,
    corpus_fingerprint="sum256:abc",
    scanned_at=7,
    roots=("/data/more",),
    excluded=("gone.md",),
    created_at="2026-01-01T00:00:00+00:00",
    specrag_version="0.1.0",
    segments=(SEGMENT,),
)


def changed(**changes: Any) -> bytes:
    return json.dumps({**MANIFEST.to_dict(), **changes}).encode()


def origin(**changes: Any) -> bytes:
    return changed(origin={**MANIFEST.to_dict()["origin"], **changes})


def segment(**changes: Any) -> bytes:
    return changed(segments=[{**MANIFEST.to_dict()["segments"][0], **changes}])


def test_a_manifest_survives_the_file() -> None:
    assert Manifest.from_json(MANIFEST.to_json()) == MANIFEST


@pytest.mark.parametrize("key", [field.name for field in dataclasses.fields(Manifest)])
def test_a_missing_key_is_refused(key: str) -> None:
    content = MANIFEST.to_dict()
    del content[key]
    with pytest.raises(IndexFormatError, match="lacks|format version None"):
        Manifest.from_json(json.dumps(content).encode())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b"[]", "format version None"),
        (
            changed(format_version=FORMAT_VERSION + 1),
            f"format version {FORMAT_VERSION + 1}; this specrag reads {FORMAT_VERSION}",
        ),
        (changed(format_version=True), "format version True"),
        (changed(format_version=FORMAT_VERSION + 1, other=1), "format version"),
        (changed(other=1), "unknown key 'other' in the index manifest"),
        (changed(origin=[]), "origin in the index manifest must be an object"),
        (origin(dimension="64"), "dimension in origin .* must be of type int, got '64'"),
        (origin(other=1), "unknown key 'other' in origin"),
        (changed(num_passages=True), "num_passages .* must be of type int, got True"),
        (changed(name=1), "name in the index manifest must be of type str, got 1"),
        (changed(roots="x"), "roots in the index manifest must be a list"),
        (changed(roots=[1]), "roots in the index manifest must be of type str, got 1"),
        (changed(segments={}), "segments in the index manifest must be a list"),
        (changed(segments=[1]), "a segment of segments .* must be an object"),
        (segment(name="../seg"), "'../seg' in segments .* names no segment"),
        (segment(files=[]), "damaged file list"),
        (segment(files={VECTORS_NAME: {}}), "damaged file list"),
        (segment(files={VECTORS_NAME: 1}), "damaged file list"),
        (segment(files={"../x": {"sha256": "", "size": 1}}), "damaged file list"),
        (segment(files={"x": {"sha256": "", "size": "1"}}), "damaged file list"),
        (segment(files={"x": {"sha256": "", "size": 1}}), "must list the files"),
        (segment(deleted="deleted-000003.npy"), "must list the files"),
        (segment(deleted=PASSAGES_NAME), "must list the files"),
        (segment(num_documents=None), "num_documents .* must be of type int"),
        (b"[" * 100_000, "not valid JSON"),
    ],
)
def test_a_bad_manifest_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(IndexFormatError, match=message):
        Manifest.from_json(data)


def other(name: str) -> dict[str, Any]:
    """A value that no field of the origin has."""
    return {name: "other"}


def test_the_index_version_tells_what_can_be_found_and_not_how_it_came_there() -> None:
    same = dataclasses.replace(
        MANIFEST, created_at="2027", segments=(), next_passage=99, scanned_at=8
    )
    assert same.index_version == MANIFEST.index_version
    others = [
        dataclasses.replace(MANIFEST, name="other"),
        dataclasses.replace(MANIFEST, corpus_fingerprint="sum256:abd"),
        *(
            dataclasses.replace(
                MANIFEST, origin=dataclasses.replace(MANIFEST.origin, **other(field.name))
            )
            for field in dataclasses.fields(IndexOrigin)
        ),
    ]
    versions = {one.index_version for one in others}
    assert len(versions - {MANIFEST.index_version}) == len(others)


def test_what_is_gone_does_not_live() -> None:
    assert SEGMENT.num_live_passages == 5


def test_a_pointer_survives_the_file() -> None:
    pointer = Pointer("manifest-000012.json", "0f" * 32)
    assert Pointer.from_text(pointer.to_text()) == pointer


@pytest.mark.parametrize(
    "text",
    [
        "",
        "manifest-000001.json\n",
        f"manifest-000001.json {'a' * 64}",
        f"manifest-000001.json {'A' * 64}\n",
        f"manifest-1.json {'a' * 64}\n",
        f"../manifest-000001.json {'a' * 64}\n",
        f"manifest-000001.json {'a' * 63}\n",
        f"manifest-000001.json {'a' * 64}\n\n",
    ],
)
def test_a_bad_pointer_is_refused(text: str) -> None:
    with pytest.raises(IndexFormatError, match="the pointer file CURRENT is damaged"):
        Pointer.from_text(text)


@pytest.mark.parametrize("number", [1, 999_999, 1_000_000])
def test_names_tell_their_numbers(number: int) -> None:
    assert manifest_number(manifest_name(number)) == number
    assert segment_number(segment_name(number)) == number
    assert is_deleted_name(deleted_name(number))


@pytest.mark.parametrize(
    "name", ["seg-1", "seg-000001x", "CURRENT", ".building-1", "manifest-1.json", "x.npy"]
)
def test_other_names_have_none(name: str) -> None:
    assert manifest_number(name) is None
    assert segment_number(name) is None
    assert not is_deleted_name(name)


def test_file_records(tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000  # more than is read at once
    (tmp_path / "file").write_bytes(data)
    assert file_record(tmp_path / "file") == FileRecord(sha256(data).hexdigest(), len(data))
