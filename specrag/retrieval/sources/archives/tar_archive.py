"""Tar archives, packed or not. Depends on the archive contract and the bounds."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

from specrag.retrieval.sources.archives.archive import Archive, PackedFile
from specrag.retrieval.sources.bounds import (
    MAX_ARCHIVE_MEMBERS,
    MAX_ARCHIVE_RATIO,
    MAX_ARCHIVE_UNPACKED_BYTES,
    MAX_TAR_HEADER_BYTES,
    MIN_BOMB_BYTES,
    readable_size,
)
from specrag.retrieval.sources.source import Member, UnreadableError

_UNPACKERS: dict[str, Callable[[BinaryIO], BinaryIO]] = {
    ".tar": lambda file: file,
    ".tar.gz": lambda file: gzip.GzipFile(fileobj=file),  # type: ignore[dict-item,return-value]
    ".tar.xz": lambda file: lzma.LZMAFile(file),  # type: ignore[dict-item,return-value] # noqa: SIM115
    ".tar.bz2": lambda file: bz2.BZ2File(file),  # type: ignore[dict-item,return-value]
}
_SHORT = {".tgz": ".tar.gz", ".txz": ".tar.xz", ".tbz2": ".tar.bz2"}
_DAMAGED = (
    tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError, ValueError, OverflowError,
)  # fmt: skip
# tarfile's patterns take quadratic time over a long run of digits before CPython 3.11.10.
_LONG_NUMBER = re.compile(rb"\d{1000}")


class TarArchive(Archive):
    """A tar file.

    Args:
        file: The open file; closed with the archive.
        name: Its name, whose suffix tells how it is packed.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        lowered = name.lower()
        suffix = next(end for end in (*_UNPACKERS, *_SHORT) if lowered.endswith(end))
        self._suffix = suffix
        self._stream = _Stream(file, _UNPACKERS[_SHORT.get(suffix, suffix)](file))

    def files(self) -> Iterator[PackedFile]:
        """Yields the files in the archive's order; sets ``damage`` at the end."""
        try:
            archive = tarfile.TarFile(fileobj=self._stream)  # type: ignore[arg-type]
        except _DAMAGED as error:
            raise UnreadableError(f"is damaged or no {self._suffix} archive ({error})") from error
        try:
            yield from self._listed(archive)
            self._check_end(archive)
        except _DAMAGED as error:
            self.damage = f"is damaged or cut off ({error}); what stands before that was read"

    def read(self, member: Member, size: int) -> bytes:
        """Returns the bytes of a file.

        Args:
            member: Where it lies.
            size: In bytes, as listed.

        Raises:
            UnreadableError: The archive ends within it.
        """
        try:
            self._stream.seek(member.position)
            data = self._stream.read_data(size)
        except _DAMAGED as error:
            raise UnreadableError(f"is damaged in the archive ({error})") from error
        if len(data) != size:
            raise UnreadableError("is cut off: the archive ends within it")
        return data

    def close(self) -> None:
        """Closes the file."""
        self._stream.close()
        self._file.close()

    def _listed(self, archive: tarfile.TarFile) -> Iterator[PackedFile]:
        for number, info in enumerate(archive, start=1):
            if number > MAX_ARCHIVE_MEMBERS:
                raise UnreadableError(
                    f"holds more than {MAX_ARCHIVE_MEMBERS:,} files; unpack it first"
                )
            if not info.isdir():
                member = Member(info.name, info.offset_data)
                yield PackedFile(member, info.size, _refusal(info))

    def _check_end(self, archive: tarfile.TarFile) -> None:
        # tarfile takes a damaged header for the end of the archive.
        self._stream.seek(archive.offset)
        block = self._stream.read(tarfile.BLOCKSIZE)
        if len(block) != tarfile.BLOCKSIZE or block.strip(b"\0"):
            raise tarfile.ReadError("it has no proper end")
        # Only at the very end do the packings say whether the bytes before were right.
        while self._stream.read(tarfile.BLOCKSIZE):
            pass


class _Stream:
    """The unpacked bytes; refuses to unpack more than the bounds allow."""

    def __init__(self, packed: BinaryIO, unpacked: BinaryIO) -> None:
        self._packed = packed
        self._unpacked = unpacked

    def tell(self) -> int:
        return self._unpacked.tell()

    def seek(self, place: int) -> int:
        self._check(place)
        while (here := self._unpacked.tell()) != place:
            # In steps, so that a bomb is noticed before all of it is unpacked.
            step = self._unpacked.seek(min(place, here + MIN_BOMB_BYTES))
            self._check(step)
            if step <= here and step != place:
                break  # the end comes first
        return self._unpacked.tell()

    def read(self, size: int) -> bytes:
        """Reads part of a header."""
        if not 0 <= size <= MAX_TAR_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {size} bytes")
        data = self.read_data(size)
        if size > tarfile.BLOCKSIZE and _LONG_NUMBER.search(data):
            raise tarfile.ReadError("a header with a number of 1000 digits")
        return data

    def read_data(self, size: int) -> bytes:
        self._check(self._unpacked.tell() + size)
        return self._unpacked.read(size)

    def close(self) -> None:
        self._unpacked.close()

    def _check(self, place: int) -> None:
        if place > MAX_ARCHIVE_UNPACKED_BYTES:
            raise UnreadableError(
                f"unpacks to more than {readable_size(MAX_ARCHIVE_UNPACKED_BYTES)}; unpack it first"
            )
        here = self._unpacked.tell()
        if here > max(MIN_BOMB_BYTES, MAX_ARCHIVE_RATIO * self._packed.tell()):
            raise UnreadableError(
                f"unpacks to more than {MAX_ARCHIVE_RATIO} times its size; unpack it first"
            )


def _refusal(info: tarfile.TarInfo) -> str | None:
    if info.issym() or info.islnk():
        return "is a link inside an archive; not followed"
    if not info.isfile():
        return "is no regular file in the archive"
    if info.issparse():
        return "is a sparse file; unpack the archive first"
    return None
