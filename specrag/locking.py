"""Keeps two processes from working in one folder at the same time."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specrag.errors import InputError


@contextmanager
def exclusive(folder: Path, name: str, busy: str, hint: str) -> Iterator[None]:
    """Keeps other processes out of a folder, which is made if it does not exist.

    The lock ends with its process, however that ends.

    Args:
        folder: To work in.
        name: Of the lock file in it.
        busy: What is said when another process is there, before the name of the folder.
        hint: What to do then.

    Raises:
        InputError: Another process is there, or the folder cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / name).open("a")
    except OSError as error:
        raise InputError(f"cannot write to {str(folder)!r}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(f"{busy} {str(folder)!r}", hint=hint) from error
        yield
