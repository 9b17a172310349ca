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
    VECTORS_NAME,
    FileRecord,
    Manifest,
    Pointer,
    file_record,
    generation_name,
    generation_number,
)

MANIFEST = Manifest(
    format_version=FORMAT_VERSION,
    name="small",
    encoder="hashing-64",
    encoder_fingerprint="hashing-v1:64:512",
    dimension=64,
    num_documents=2,
    num_passages=5,
    chunk_size=20,
    chunk_overlap=5,
    splitter_version=1,
    corpus_fingerprint="sha256:abc",
    created_at="2026-01-01T00:00:00+00:00",
    specrag_version="0.1.0",
    files={VECTORS_NAME: FileRecord("a" * 64, 10), PASSAGES_NAME: FileRecord("b" * 64, 20)},
)


def changed(**changes: Any) -> bytes:
    return json.dumps({**MANIFEST.to_dict(), **changes}).encode()


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
        (changed(other=1), "unknown key 'other' in the manifest"),
        (changed(dimension="64"), "dimension in the index manifest must be of type int, got '64'"),
        (changed(num_passages=True), "num_passages .* must be of type int, got True"),
        (changed(name=1), "name in the index manifest must be of type str, got 1"),
        (changed(files=[]), "files in the index manifest must be of type dict"),
        (changed(files={VECTORS_NAME: {}}), "must list the files"),
        (changed(files={VECTORS_NAME: {}, PASSAGES_NAME: {}}), "damaged file list"),
        (changed(files={VECTORS_NAME: 1, PASSAGES_NAME: 1}), "damaged file list"),
    ],
)
def test_a_bad_manifest_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(IndexFormatError, match=message):
        Manifest.from_json(data)


def test_the_index_version_depends_on_the_content_and_not_on_the_time() -> None:
    later = dataclasses.replace(MANIFEST, created_at="2027-01-01T00:00:00+00:00")
    assert later.index_version == MANIFEST.index_version
    fields = dataclasses.asdict(MANIFEST)
    del fields["created_at"], fields["files"]
    changes: list[dict[str, Any]] = [{key: f"{value}1"} for key, value in fields.items()]
    changes.append({"files": {**MANIFEST.files, VECTORS_NAME: FileRecord("c" * 64, 10)}})
    versions = {dataclasses.replace(MANIFEST, **change).index_version for change in changes}
    assert len(versions - {MANIFEST.index_version}) == len(changes)


def test_a_pointer_survives_the_file() -> None:
    pointer = Pointer("gen-000012", "0f" * 32)
    assert Pointer.from_text(pointer.to_text()) == pointer


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gen-000001\n",
        f"gen-000001 {'a' * 64}",
        f"gen-000001 {'A' * 64}\n",
        f"gen-1 {'a' * 64}\n",
        f"../gen-000001 {'a' * 64}\n",
        f"gen-000001 {'a' * 63}\n",
        f"gen-000001 {'a' * 64}\n\n",
    ],
)
def test_a_bad_pointer_is_refused(text: str) -> None:
    with pytest.raises(IndexFormatError, match="the pointer file CURRENT is damaged"):
        Pointer.from_text(text)


@pytest.mark.parametrize("number", [1, 999_999, 1_000_000])
def test_generation_names(number: int) -> None:
    assert generation_number(generation_name(number)) == number


@pytest.mark.parametrize("name", ["gen-1", "gen-000001x", "CURRENT", ".building-1", "gen-"])
def test_other_names_are_no_generations(name: str) -> None:
    assert generation_number(name) is None


def test_file_records(tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000  # more than is read at once
    (tmp_path / "file").write_bytes(data)
    assert file_record(tmp_path / "file") == FileRecord(sha256(data).hexdigest(), len(data))
