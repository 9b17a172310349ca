"""Keeps two processes from building one index at the same time. Depends on the layout."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from specrag.locking import exclusive
from specrag.retrieval.layout import LOCK_NAME


def builder_lock(index: Path) -> AbstractContextManager[None]:
    """Keeps other builders out of an index folder, which is made if it does not exist.

    The lock ends with its process, however that ends.

    Args:
        index: The index folder.

    Raises:
        InputError: Another builder is at work, or the folder cannot be made.
    """
    return exclusive(
        index, LOCK_NAME, "another process is building", hint="wait until it has finished"
    )
