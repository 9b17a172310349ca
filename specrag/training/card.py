"""The card of a trained drafter: what it was made of, and what became of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specrag.drafters.shipped import CARD
from specrag.errors import InputError


def read_card(folder: Path) -> dict[str, Any]:
    """Returns the card of a trained drafter.

    Args:
        folder: What `specrag train` wrote.

    Raises:
        InputError: It has none, or one that cannot be read.
    """
    try:
        card = json.loads((folder / CARD).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read the card {str(folder / CARD)!r}: {error}",
            hint="give the folder that specrag train wrote",
        ) from error
    if not isinstance(card, dict):
        raise InputError(f"the card {str(folder / CARD)!r} is no JSON object")
    return card


def write_card(folder: Path, card: Mapping[str, Any]) -> None:
    """Writes a card, whole or not at all.

    Args:
        folder: Of the drafter.
        card: Plain data.
    """
    partial = folder / f".{CARD}"
    partial.write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    partial.replace(folder / CARD)
