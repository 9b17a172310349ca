from __future__ import annotations

import io
import zipfile

import pytest

from specrag.retrieval.sources.archives import zip_archive
from specrag.retrieval.sources.archives.zip_archive import ZipArchive
from specrag.retrieval.sources.source import UnreadableError
from tests.retrieval.sources.samples import zip_of


def test_files_are_listed_and_read_in_any_order() -> None:
    archive = ZipArchive(io.BytesIO(zip_of({"b.md": "two", "a/": "", "a/a.md": "one" * 100})))
    files = list(archive.files())
    assert [(file.member.name, file.size, file.refusal) for file in files] == [
        ("b.md", 3, None),
        ("a/a.md", 300, None),
    ]
    for file in reversed(files):
        assert len(archive.read(file.member, file.size)) == file.size
    archive.close()


def test_a_member_gives_no_more_than_it_says() -> None:
    # The directory claims 3 bytes of a member that holds 300.
    data = bytearray(zip_of({"a.md": "one" * 100}))
    place = data.rindex(b"PK\x01\x02") + 24
    data[place : place + 4] = (3).to_bytes(4, "little")
    archive = ZipArchive(io.BytesIO(bytes(data)))
    (file,) = archive.files()
    with pytest.raises(UnreadableError, match="is damaged in the archive"):
        archive.read(file.member, file.size)


def test_a_damaged_member_is_reported() -> None:
    data = bytearray(zip_of({"a.md": "some words " * 50}))
    data[40] ^= 0xFF
    archive = ZipArchive(io.BytesIO(bytes(data)))
    (file,) = archive.files()
    with pytest.raises(UnreadableError, match="is damaged in the archive"):
        archive.read(file.member, file.size)


def test_an_unknown_packing_is_reported() -> None:
    data = bytearray(zip_of({"a.md": "some words " * 50}))
    place = data.rindex(b"PK\x01\x02") + 10
    for start in (8, place):
        data[start : start + 2] = (9).to_bytes(2, "little")  # "deflate64"
    archive = ZipArchive(io.BytesIO(bytes(data)))
    (file,) = archive.files()
    with pytest.raises(UnreadableError, match="is packed in a way that is not known"):
        archive.read(file.member, file.size)


@pytest.mark.parametrize(
    "data", [b"", b"no zip", zip_of({"a": "b"})[:-3], b"PK\x05\x06" + b"\0" * 9]
)
def test_what_is_no_zip_is_refused(data: bytes) -> None:
    with pytest.raises(UnreadableError, match="is damaged or no zip archive"):
        ZipArchive(io.BytesIO(data))


def test_the_number_of_files_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = zip_of({f"{number}.md": "" for number in range(4)})
    assert len(list(ZipArchive(io.BytesIO(data)).files())) == 4
    monkeypatch.setattr(zip_archive, "MAX_ARCHIVE_MEMBERS", 3)
    with pytest.raises(UnreadableError, match="holds more than 3 files; unpack it first"):
        ZipArchive(io.BytesIO(data))
    lying = bytearray(data)
    place = lying.rindex(b"PK\x05\x06")
    lying[place + 8 : place + 12] = b"\1\0\1\0"
    with pytest.raises(UnreadableError, match="holds more than 3 files; unpack it first"):
        ZipArchive(io.BytesIO(bytes(lying)))


def test_a_large_directory_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    data = zip_of({"a" * 100: ""})
    monkeypatch.setattr(zip_archive, "MAX_ZIP_DIRECTORY_BYTES", 100)
    monkeypatch.setattr(zipfile, "ZipFile", None)
    with pytest.raises(UnreadableError, match="holds more than 50,000 files"):
        ZipArchive(io.BytesIO(data))
