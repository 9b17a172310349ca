"""EngineLimits: how much an engine takes on. Depends on no model, so that settings can name it."""

from __future__ import annotations

from dataclasses import dataclass

from specrag.errors import ConfigError


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """How much an engine takes on.

    Attributes:
        max_batch: Most rows that are decoded together.
        max_waiting: Most requests that wait for a place.

    Raises:
        ConfigError: One is below 1.
    """

    max_batch: int = 8
    max_waiting: int = 64

    def __post_init__(self) -> None:
        for name in ("max_batch", "max_waiting"):
            value = getattr(self, name)
            if value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}")
