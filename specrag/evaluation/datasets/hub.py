"""Rows of a set on the hub, through the optional ``datasets`` library."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from specrag.errors import InputError
from specrag.evaluation.datasets.files import Row, Rows
from specrag.extras import require_extra

PREFIX = "hub:"


def read_hub(source: str, split: str = "") -> tuple[str, Rows, str]:
    """Fetches the rows of a set.

    Args:
        source: ``hub:NAME`` or ``hub:NAME:CONFIG``.
        split: Such as ``validation``; by default that, or else ``test`` or ``train``.

    Returns:
        The set's name, its rows, and a SHA-256 over them.

    Raises:
        MissingExtraError: The library is not installed.
        InputError: The set cannot be fetched, or has no such split.
    """
    library: Any = require_extra("datasets", "hub")
    name, _, config = source.removeprefix(PREFIX).partition(":")
    try:
        found: Any = library.load_dataset(name, config or None)
    except Exception as error:  # networks, scripts and formats fail in many ways
        raise InputError(
            f"cannot fetch the set {name!r}: {type(error).__name__}: {error}",
            hint="check name and network, or download it and give its path",
        ) from error
    splits = list(found)
    usual = (part for part in ("validation", "test", "train") if part in splits)
    wanted = split or next(usual, splits[0])
    if wanted not in splits:
        raise InputError(f"{name!r} has no split {wanted!r}; it has {', '.join(splits)}")
    rows: list[Row] = [dict(row) for row in found[wanted]]
    if not rows:
        raise InputError(f"the split {wanted!r} of {name!r} is empty")
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(row, sort_keys=True, default=str).encode())
    places = tuple(f"row {number} of {source!r}" for number in range(1, len(rows) + 1))
    return name.rpartition("/")[2], Rows(tuple(rows), places), digest.hexdigest()
