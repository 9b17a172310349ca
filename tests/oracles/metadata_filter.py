"""Whether a document passes a filter, from plain values; nothing of SQL."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def matches(
    document: Mapping[str, Any], metadata: Mapping[str, Any], name: str, sign: str, wanted: Any
) -> bool:
    """Tells whether one condition holds.

    Args:
        document: Its ``document``, ``source`` and ``title``.
        metadata: Its metadata, possibly nested.
        name: Name of the field.
        sign: The operator.
        wanted: What to compare with.
    """
    held = _held(document, metadata, name)
    if sign == "exists":
        return bool(held) is bool(wanted)
    if sign == "=":
        return any(_equal(value, wanted) for value in held)
    if sign == "!=":
        return not any(_equal(value, wanted) for value in held)
    if sign in ("in", "not in"):
        found = any(_equal(value, choice) for value in held for choice in wanted)
        return found == (sign == "in")
    return any(_kind(value) == _kind(wanted) and _ORDERS[sign](value, wanted) for value in held)


def _held(document: Mapping[str, Any], metadata: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = document[name] if name in document else _looked_up(metadata, name)
    values = list(value) if isinstance(value, list | tuple) else [value]
    return [one for one in values if one is not None]


def _looked_up(metadata: Mapping[str, Any], name: str) -> Any:
    name = name.removeprefix("metadata.")
    if name in metadata:
        return metadata[name]
    value: Any = metadata
    for step in name.split("."):
        if not isinstance(value, Mapping) or step not in value:
            return None
        value = value[step]
    return value


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "truth"
    return {str: "text", int: "number", float: "number"}.get(type(value), "nothing to compare")


def _equal(value: Any, wanted: Any) -> bool:
    return _kind(value) == _kind(wanted) and bool(value == wanted)
