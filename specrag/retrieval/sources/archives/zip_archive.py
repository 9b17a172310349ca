"""Zip archives. Depends on the archive contract and the bounds."""

from __future__ import annotations

import lzma
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from specrag.retrieval.sources.archives.archive import Archive, PackedFile
from specrag.retrieval.sources.bounds import MAX_ARCHIVE_MEMBERS, MAX_ZIP_DIRECTORY_BYTES
from specrag.retrieval.sources.source import Member, UnreadableError

_END_SIGNATURE, _END_BYTES, _MAX_COMMENT_BYTES = b"PK\x05\x06", 22, 1 << 16
_DAMAGED = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, struct.error,
)  # fmt: skip


class ZipArchive(Archive):
    """A zip file.

    Args:
        file: The open file; closed with the archive.

    Raises:
        UnreadableError: It is no zip file, or its directory is too large.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        check_directory(file)
        try:
            self._zip = zipfile.ZipFile(file)
        except (*_DAMAGED, NotImplementedError) as error:
            raise UnreadableError(f"is damaged or no zip archive ({error})") from error
        self._infos = self._zip.infolist()
        if len(self._infos) > MAX_ARCHIVE_MEMBERS:
            raise UnreadableError(_too_many())

    def files(self) -> Iterator[PackedFile]:
        """Yields the files in the order of the directory."""
        for position, info in enumerate(self._infos):
            if not info.is_dir():
                yield PackedFile(Member(info.filename, position), info.file_size, _refusal(info))

    def read(self, member: Member, size: int) -> bytes:
        """Returns the bytes of a file.

        Args:
            member: Where it lies.
            size: In bytes, as listed.

        Raises:
            UnreadableError: It is damaged or packed in an unknown way.
        """
        try:
            with self._zip.open(self._infos[member.position]) as file:
                return file.read(size)
        except NotImplementedError as error:
            raise UnreadableError(f"is packed in a way that is not known ({error})") from error
        except RuntimeError as error:  # what zipfile raises for a password
            raise UnreadableError("is encrypted; unpack the archive first") from error
        except _DAMAGED as error:
            raise UnreadableError(f"is damaged in the archive ({error})") from error

    def close(self) -> None:
        """Closes the file."""
        self._zip.close()
        self._file.close()


def check_directory(file: BinaryIO) -> None:
    """Refuses a zip file whose directory would take much memory, before it is read.

    Args:
        file: The open file.

    Raises:
        UnreadableError: It has no directory, or one that is too large.
    """
    size = file.seek(0, 2)
    file.seek(max(0, size - _END_BYTES - _MAX_COMMENT_BYTES))
    tail = file.read()
    place = tail.rfind(_END_SIGNATURE)
    if place < 0 or len(tail) - place < _END_BYTES:
        raise UnreadableError("is damaged or no zip archive (no directory at its end)")
    num_files, directory_bytes = struct.unpack_from("<HI", tail, place + 10)
    if num_files > MAX_ARCHIVE_MEMBERS or directory_bytes > MAX_ZIP_DIRECTORY_BYTES:
        raise UnreadableError(_too_many())


def _too_many() -> str:
    return f"holds more than {MAX_ARCHIVE_MEMBERS:,} files; unpack it first"


def _refusal(info: zipfile.ZipInfo) -> str | None:
    if info.flag_bits & 1:
        return "is encrypted; unpack the archive first"
    if stat.S_ISLNK(info.external_attr >> 16):
        return "is a link inside an archive; not followed"
    return None
