"""ArmSpec: how a drafter is measured, written in one line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, NamedTuple, get_type_hints

from specrag.decoding.budget import SpeculationConfig
from specrag.decoding.drafter import Drafter, named_drafter
from specrag.errors import ConfigError, suggest

_FLAGS = {"true": True, "false": False}


class ArmSpec(NamedTuple):
    """A drafter, and how much it drafts.

    Attributes:
        drafter: Made of its name.
        config: The settings that all arms share, with what the line changes.
    """

    drafter: Drafter
    config: SpeculationConfig


def read_arm(line: str, shared: SpeculationConfig) -> ArmSpec:
    """Reads a line such as ``eagle3 num_speculative_tokens=4 branching=1``.

    Args:
        line: A drafter's name, then settings of ``SpeculationConfig`` that are its own.
        shared: What all others are.

    Raises:
        ConfigError: The drafter or a setting is unknown, or a value is none of that setting.
    """
    name, *words = line.split() or [""]
    return ArmSpec(named_drafter(name), replace(shared, **dict(map(_setting, words))))


def _setting(word: str) -> tuple[str, Any]:
    name, _, typed = word.partition("=")
    allowed = [field.name for field in fields(SpeculationConfig)]
    if name not in allowed:
        raise ConfigError(f"unknown setting {word!r} of a drafter; {suggest(name, allowed)}")
    kind = get_type_hints(SpeculationConfig)[name]
    readers: dict[Any, Callable[[str], Any]] = {bool: _FLAGS.__getitem__, str: str, float: float}
    try:
        return name, readers.get(kind, int)(typed)
    except (KeyError, ValueError):
        wanted = "true or false" if kind is bool else "a number"
        raise ConfigError(f"{name} must be {wanted}, got {typed!r}") from None
