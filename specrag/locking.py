"""Keeps two processes from working in one folder at the same time."""

from __future__ import annotations

import fcntl
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from specrag.errors import InputError

_LOG = logging.getLogger(__name__)
_POLL_SECONDS = 0.05
WAIT_SECONDS = 60.0
"""How long a change waits by default for another process that changes the same."""


class BusyError(InputError):
    """Another process works in the folder."""


@contextmanager
def exclusive(
    folder: Path, name: str, busy: str, hint: str, *, wait_seconds: float = 0.0
) -> Iterator[None]:
    """Keeps other processes out of a folder, which is made if it does not exist.

    The lock ends with its process, however that ends.

    Args:
        folder: To work in.
        name: Of the lock file in it.
        busy: What is said when another process is there, before the name of the folder.
        hint: What to do then.
        wait_seconds: How long to wait for another process to finish.

    Raises:
        BusyError: Another process is there still.
        InputError: The folder cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / name).open("a")
    except OSError as error:
        raise InputError(f"cannot write to {str(folder)!r}: {error.strerror}") from error
    with lock:
        if not _locked(lock, 0.0):
            if wait_seconds > 0:
                _LOG.warning("%s %r; waiting up to %g s", busy, str(folder), wait_seconds)
            if not _locked(lock, wait_seconds):
                raise BusyError(f"{busy} {str(folder)!r}", hint=hint)
        yield


def _locked(lock: IO[str], wait_seconds: float) -> bool:
    """Takes the lock; the system offers no wait that ends by itself, so it is tried again."""
    end = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(_POLL_SECONDS)
        else:
            return True
