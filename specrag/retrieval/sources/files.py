"""Reads whole files that may change or turn out to be no files. Depends on bounds and types."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from specrag.retrieval.sources.bounds import readable_size
from specrag.retrieval.sources.source import UnreadableError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# Opening a pipe that nobody writes to would wait for ever.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NUM_TRIES = 2


def kind_of(mode: int) -> str | None:
    """Names what a file is that is no regular one, such as ``a socket``.

    Args:
        mode: The mode that ``stat`` gives.

    Returns:
        None for a regular file.
    """
    return None if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "a special file")


def open_regular(path: Path) -> BinaryIO:
    """Opens a file for reading, if it is a regular one.

    Args:
        path: The file.

    Raises:
        UnreadableError: It is a pipe, a device or the like.
        OSError: It cannot be opened.
    """
    descriptor = os.open(path, _FLAGS)
    kind = kind_of(os.fstat(descriptor).st_mode)
    if kind is not None:
        os.close(descriptor)
        raise UnreadableError(f"is {kind}, not a file")
    return os.fdopen(descriptor, "rb")


def read_steady(path: Path, max_bytes: int) -> tuple[bytes, os.stat_result]:
    """Reads a file once, making sure that nobody wrote to it meanwhile.

    Args:
        path: The file.
        max_bytes: The largest size that is read.

    Returns:
        The bytes, and the file's facts at that time.

    Raises:
        UnreadableError: It is too large, no regular file, or changes all the time.
        OSError: It cannot be read.
    """
    for _ in range(_NUM_TRIES):
        with open_regular(path) as file:
            before = os.fstat(file.fileno())
            if before.st_size > max_bytes:
                raise too_large(max_bytes)
            data = file.read(max_bytes + 1)
            after = os.fstat(file.fileno())
        if is_same(before, after) and len(data) == after.st_size:
            return data, after
    raise UnreadableError("changed while it was read; run again when nothing writes to it")


def is_same(before: os.stat_result, after: os.stat_result) -> bool:
    """Tells whether a file is unchanged by its facts.

    Args:
        before: Its facts.
        after: Its facts at a later time.
    """
    return (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)


def too_large(max_bytes: int) -> UnreadableError:
    """Returns the error of a file that is larger than a bound.

    Args:
        max_bytes: The bound.
    """
    return UnreadableError(f"is larger than {readable_size(max_bytes)}; split it")
