"""Keeps two processes from changing one index at the same time. Depends on the layout."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from specrag.locking import exclusive
from specrag.retrieval.layout import LOCK_NAME


def builder_lock(index: Path, *, wait_seconds: float = 0.0) -> AbstractContextManager[None]:
    """Keeps other writers out of an index folder, which is made if it does not exist.

    The lock ends with its process, however that ends.

    Args:
        index: The index folder.
        wait_seconds: How long to wait for another writer to finish.

    Raises:
        BusyError: Another writer is at work still.
        InputError: The folder cannot be made.
    """
    return exclusive(
        index,
        LOCK_NAME,
        "another process is building",
        hint="wait until it has finished",
        wait_seconds=wait_seconds,
    )
