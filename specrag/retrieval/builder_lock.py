"""Keeps two processes from building one index at the same time. Depends on the layout."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specrag.errors import InputError
from specrag.retrieval.layout import LOCK_NAME


@contextmanager
def builder_lock(index: Path) -> Iterator[None]:
    """Keeps other builders out of an index folder, which is made if it does not exist.

    The lock ends with its process, however that ends.

    Args:
        index: The index folder.

    Raises:
        InputError: Another builder is at work, or the folder cannot be made.
    """
    try:
        index.mkdir(parents=True, exist_ok=True)
        lock = (index / LOCK_NAME).open("a")
    except OSError as error:
        raise InputError(f"cannot write to {str(index)!r}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                f"another process is building {str(index)!r}", hint="wait until it has finished"
            ) from error
        yield
