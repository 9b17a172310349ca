"""CorpusSettings: how much text a target writes to train on, and how it samples it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specrag.errors import ConfigError

_BLOCK_BATCHES = 8


@dataclass(frozen=True, slots=True)
class CorpusSettings:
    """What to generate.

    Attributes:
        num_own: Instructions that the target makes up itself.
        num_rows: Answers; None gives one to each prompt. With more, prompts are answered again,
            each time at another temperature.
        temperatures: Of the answers, dealt to the prompts in turn; 0 is greedy.
        max_tokens: Most tokens of an answer.
        max_prompt_tokens: Longer prompts, chat format included, are left out.
        own_temperature: At which instructions are made up.
        max_own_tokens: Most tokens of an instruction; what has not ended by then is dropped.
        batch_size: Rows of a pass.
        seed: Of all draws and of the order of the prompts.
    """

    num_own: int = 0
    num_rows: int | None = None
    temperatures: tuple[float, ...] = (0.0, 0.7, 1.0)
    max_tokens: int = 192
    max_prompt_tokens: int = 1024
    own_temperature: float = 1.0
    max_own_tokens: int = 128
    batch_size: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("max_tokens", "max_prompt_tokens", "max_own_tokens", "batch_size"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "1 or more")
        _require(self.num_own >= 0, "num_own", self.num_own, "0 or more")
        rows = self.num_rows
        _require(rows is None or rows >= 1, "num_rows", rows, "1 or more")
        listed = self.temperatures
        good = all(0 <= value < math.inf for value in listed) and len(set(listed)) == len(listed)
        _require(bool(listed) and good, "temperatures", listed, "numbers of 0 or more, each once")
        good = 0 < self.own_temperature < math.inf
        _require(good, "own_temperature", self.own_temperature, "above 0")

    @property
    def block_rows(self) -> int:
        """Rows that are decoded and written together."""
        return _BLOCK_BATCHES * self.batch_size

    def total_rows(self, num_prompts: int) -> int:
        """Returns how many answers are wanted.

        Args:
            num_prompts: That there are.

        Raises:
            ConfigError: More than one a prompt and temperature.
        """
        most = num_prompts * len(self.temperatures)
        wanted = num_prompts if self.num_rows is None else self.num_rows
        if wanted > most:
            raise ConfigError(
                f"{wanted} rows are asked for; {num_prompts} prompts at {len(self.temperatures)} "
                f"temperatures give at most {most}",
                hint="give more prompts, own instructions or temperatures",
            )
        return wanted

    def temperature_of(self, row: int, num_prompts: int) -> float:
        """Returns the temperature of an answer: another one each time that a prompt comes round.

        Args:
            row: Number of the answer, from 0.
            num_prompts: That there are.
        """
        around, place = divmod(row, num_prompts)
        return self.temperatures[(place + around) % len(self.temperatures)]


def _require(holds: bool, name: str, value: object, allowed: str) -> None:
    if not holds:
        raise ConfigError(f"{name} must be {allowed}, got {value!r}")
