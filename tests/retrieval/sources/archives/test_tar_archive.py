from __future__ import annotations

import io
import random
import tarfile

import pytest

from specrag.retrieval.sources.archives import tar_archive
from specrag.retrieval.sources.archives.tar_archive import TarArchive
from specrag.retrieval.sources.source import UnreadableError
from tests.retrieval.sources.samples import tar_of

KINDS = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz", ".tar.xz": "w:xz", ".tbz2": "w:bz2"}
MEMBERS = {f"{number}/x.md": f"{number} " * (1 + 700 * number) for number in range(9)}


def names(archive: TarArchive) -> list[str]:
    return [file.member.name for file in archive.files()]


@pytest.mark.parametrize("suffix", KINDS)
def test_files_are_listed_and_read_in_any_order(suffix: str) -> None:
    archive = TarArchive(io.BytesIO(tar_of(MEMBERS, KINDS[suffix])), f"A{suffix.upper()}")
    files = list(archive.files())
    assert archive.damage is None
    for file in [*files, *reversed(files)]:
        assert archive.read(file.member, file.size).decode() == MEMBERS[file.member.name]
    archive.close()


def test_what_is_no_file_is_refused() -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, kind in [
            ("folder", tarfile.DIRTYPE),
            ("soft.md", tarfile.SYMTYPE),
            ("hard.md", tarfile.LNKTYPE),
            ("pipe.md", tarfile.FIFOTYPE),
        ]:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    files = TarArchive(io.BytesIO(stream.getvalue()), "a.tar").files()
    assert [(file.member.name, file.refusal) for file in files] == [
        ("soft.md", "is a link inside an archive; not followed"),
        ("hard.md", "is a link inside an archive; not followed"),
        ("pipe.md", "is no regular file in the archive"),
    ]


@pytest.mark.parametrize("suffix", KINDS)
@pytest.mark.parametrize("data", [b"", b"no archive " * 100])
def test_what_is_no_archive_is_refused(suffix: str, data: bytes) -> None:
    archive = TarArchive(io.BytesIO(data), f"a{suffix}")
    with pytest.raises(UnreadableError, match=f"is damaged or no {suffix} archive"):
        names(archive)


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tar.xz", ".tbz2"])
def test_no_cut_or_flipped_byte_loses_files_unnoticed(suffix: str) -> None:
    data = tar_of(MEMBERS, KINDS[suffix])
    chance = random.Random(1)
    for trial in range(40):
        harmed = bytearray(data)
        if trial % 2:
            harmed = harmed[: chance.randrange(len(data))]
        else:
            harmed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        archive = TarArchive(io.BytesIO(bytes(harmed)), f"a{suffix}")
        try:
            listed = list(archive.files())
        except UnreadableError:
            continue
        assert len(listed) == len(MEMBERS) or archive.damage is not None
        if archive.damage is None and suffix != ".tar":  # which has no checksum of its content
            for file in listed:
                assert archive.read(file.member, file.size).decode() == MEMBERS[file.member.name]


def test_a_cut_between_members_is_noticed() -> None:
    data = tar_of({"a.md": "x", "b.md": "y"})
    archive = TarArchive(io.BytesIO(data[:1024]), "a.tar")
    assert names(archive) == ["a.md"]
    assert archive.damage == (
        "is damaged or cut off (it has no proper end); what stands before that was read"
    )
    (file,) = TarArchive(io.BytesIO(data[:1024]), "a.tar").files()
    with pytest.raises(UnreadableError, match="is cut off: the archive ends within it"):
        archive.read(file.member, file.size + 2000)


def test_bombs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = tar_of({"a.md": b" " * 3_000_000, "b.md": "x"}, "w:xz")
    assert len(bomb) < 3000
    monkeypatch.setattr(tar_archive, "MIN_BOMB_BYTES", 1_000_000)
    with pytest.raises(UnreadableError, match="unpacks to more than 200 times its size"):
        names(TarArchive(io.BytesIO(bomb), "a.tar.xz"))
    monkeypatch.setattr(tar_archive, "MAX_ARCHIVE_UNPACKED_BYTES", 1024 * 1024)
    with pytest.raises(UnreadableError, match="unpacks to more than 1 MiB; unpack it first"):
        names(
            TarArchive(io.BytesIO(tar_of({"a.md": random.Random(0).randbytes(2_000_000)})), "a.tar")
        )


def test_the_number_of_files_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar_archive, "MAX_ARCHIVE_MEMBERS", 8)
    with pytest.raises(UnreadableError, match="holds more than 8 files; unpack it first"):
        names(TarArchive(io.BytesIO(tar_of(MEMBERS)), "a.tar"))


@pytest.mark.parametrize("body", [b"1" * 200_000, b"x" * 2_000_000])
def test_hostile_headers_take_no_time_or_memory(body: bytes) -> None:
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, len(body)
    data = tar_of({"a.md": "x"})
    padded = body + b"\0" * (-len(body) % 512)
    first, rest = data[:1024], data[1024:]
    archive = TarArchive(io.BytesIO(first + info.tobuf() + padded + rest), "a.tar")
    assert names(archive) == ["a.md"]
    assert archive.damage is not None
