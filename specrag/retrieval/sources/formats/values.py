"""Values that stand in files as text get types. Depends on the document module."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from specrag.retrieval.document import MetadataValue

# Numbers with leading zeros, such as post codes, are names.
_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,17})")
_DECIMAL = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,30}(?:[eE][+-]?\d{1,3})?|[eE][+-]?\d{1,3})")
_BOOLEANS = {"true": True, "false": False}
MAX_INTEGER = 2**63 - 1


def typed(text: str) -> MetadataValue:
    """Returns a text as the number or truth value that it spells, else as it is.

    Args:
        text: Such as ``2024``, ``0.5`` or ``true``.
    """
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return _BOOLEANS.get(text.lower(), text)


def typed_column(texts: Sequence[str]) -> list[MetadataValue]:
    """Returns the values of a column as one type: numbers or truth values if all are, else texts.

    Args:
        texts: None of them blank.
    """
    values = [typed(text) for text in texts]
    kinds = {type(value) for value in values}
    if len(kinds) == 1:
        return values
    if kinds == {int, float}:
        return [float(value) for value in values if isinstance(value, int | float)]
    return list(texts)
