"""The exceptions specrag raises on purpose. Depends on nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SpecragError(Exception):
    """Base of every error that a user can cause or mend.

    Args:
        message: What was wrong, with the value received and what is allowed.
        hint: What to do next; printed on a line of its own.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class ConfigError(SpecragError):
    """A pipeline, recipe, option or parameter that cannot be used."""


class InputError(SpecragError):
    """A question, prompt or document that cannot be used."""


class ModelError(SpecragError):
    """A model that cannot be fetched, read or run."""


class IndexFormatError(SpecragError):
    """An index folder that is damaged, foreign or made by another version or encoder."""


class GateError(SpecragError):
    """A gate calibration that cannot be read or does not fit."""


class FixedBatchError(ConfigError):
    """A drafter whose sessions take no further rows."""


class EngineError(SpecragError):
    """A request that an engine does not finish."""


class QueueFullError(EngineError):
    """Too many requests are waiting already; a later try may succeed."""


class DeadlineError(EngineError):
    """A request that was not done in the time that it had."""


class EngineClosedError(EngineError):
    """A request to an engine that is closed."""


class MissingExtraError(SpecragError):
    """A feature whose optional dependencies are not installed."""


def suggest(name: str, known: Iterable[str]) -> str:
    """Names the allowed values, nearest first.

    Args:
        name: The unknown name received.
        known: The names that are allowed.

    Returns:
        A phrase such as ``did you mean 'suffix'? allowed: prompt_lookup, suffix``.
    """
    allowed = sorted(known)
    near = difflib.get_close_matches(name, allowed, n=1, cutoff=0.5)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"{guess}allowed: {', '.join(allowed) or '(none)'}"
