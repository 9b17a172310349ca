"""What can be asked of an archive. Depends on the source types."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from specrag.retrieval.sources.source import Member

ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2")


@dataclass(frozen=True, slots=True)
class PackedFile:
    """A file within an archive.

    Attributes:
        member: Where it lies.
        size: Unpacked, in bytes, as the archive says.
        refusal: Why it cannot be read; None when it can.
    """

    member: Member
    size: int
    refusal: str | None = None


class Archive(ABC):
    """An open archive; nothing of it is ever written to disk.

    Attributes:
        damage: After all files were listed, what is wrong with the archive's end, if anything.
    """

    damage: str | None = None

    @abstractmethod
    def files(self) -> Iterator[PackedFile]:
        """Yields what is neither a folder nor a folder's name, in the archive's order.

        Raises:
            UnreadableError: It is no archive of its kind, or passes a bound.
        """

    @abstractmethod
    def read(self, member: Member, size: int) -> bytes:
        """Returns the bytes of a file; fastest in the archive's order.

        Args:
            member: Where it lies.
            size: In bytes, as listed; no more is unpacked.

        Raises:
            UnreadableError: It is damaged.
        """

    @abstractmethod
    def close(self) -> None:
        """Closes the file that the archive is read from."""


def is_archive(name: str) -> bool:
    """Tells by its name whether a file is an archive.

    Args:
        name: The name.
    """
    return name.lower().endswith(ARCHIVE_SUFFIXES)


def clean_name(name: str) -> str:
    """Returns the name of a member as a relative POSIX path that leads nowhere else.

    Args:
        name: As the archive has it; may start at a root or a drive, go up, or use backslashes.
    """
    parts = PurePosixPath(name.replace("\\", "/")).parts
    return "/".join(
        part for part in parts if part not in ("/", "//", ".", "..") and part[1:] != ":"
    )
