"""An arm that plays what a test wrote down, and keeps a diary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from specrag.decoding.stats import DecodingStats
from specrag.decoding.tree import DraftTree
from specrag.errors import ModelError
from specrag.evaluation.speed.arm import ReferenceArm, Sample
from specrag.evaluation.speed.prompts import SpeedPrompt

Diary = list[tuple[str, int, int, int]]
"""Arm, first token of the prompt, most and fewest tokens."""


def prompt(number: int, category: str = "rag", task: str | None = None) -> SpeedPrompt:
    return SpeedPrompt(f"q{number}", category, task, (number,))


def counted(*accepted: int, drafted: int = 3) -> DecodingStats:
    """The counters of passes that verified chains, of which so many tokens were accepted."""
    stats = DecodingStats(num_tokens=1)
    for number in accepted:
        stats.record(DraftTree.chain([1] * drafted), range(number), number + 1)
    return stats


class ScriptedArm(ReferenceArm):
    """Answers prompt ``p`` with tokens ``p, p + 1 ...`` in the times that it is told.

    Args:
        name: Of the arm.
        diary: Where its calls are written down, if anywhere.
        length: Tokens to its own end, by prompt.
        times: Time of all that follows the first token, by prompt and call.
        wrong_at: Place of a wrong token, by prompt and call; below zero for none.
        fails_at: Call that fails, counted from 0.
        own: Whether it has counters, as arms of this engine do.
    """

    def __init__(
        self,
        name: str,
        diary: Diary | None = None,
        *,
        length: Callable[[int], int] = lambda prompt: 9,
        times: Callable[[int, int], float] = lambda prompt, call: 80.0,
        wrong_at: Callable[[int, int], int] = lambda prompt, call: -1,
        fails_at: int | None = None,
        own: bool = True,
    ) -> None:
        self.name = name
        self.details = {"engine": "script"}
        self.closed = False
        self._diary: Diary = [] if diary is None else diary
        self._length, self._times, self._wrong_at = length, times, wrong_at
        self._fails_at, self._own = fails_at, own
        self._calls = count()

    def decode(self, prompt_ids: Sequence[int], max_tokens: int, min_tokens: int = 0) -> Sample:
        call, first = next(self._calls), prompt_ids[0]
        self._diary.append((self.name, first, max_tokens, min_tokens))
        if call == self._fails_at:
            raise ModelError("the engine is gone", hint="start it again")
        size = max(min_tokens, min(max_tokens, self._length(first)))
        tokens = [first + place for place in range(size)]
        wrong = self._wrong_at(first, call)
        if 0 <= wrong < size:
            tokens[wrong] = 999
        time = self._times(first, call)
        steps = size - 1
        return Sample(
            tuple(tokens),
            10.0,
            time,
            tuple(time / steps for _ in range(steps)),
            (1,) * steps,
            counted(*[0] * steps) if self._own else None,
            1.0,
        )

    def look(self, prompt_ids: Sequence[int], max_tokens: int) -> Sample:
        first = prompt_ids[0]
        size = min(max_tokens, self._length(first))
        tokens = tuple(first + place for place in range(size))
        margins = tuple(round(0.01 * (place + 1), 2) for place in range(size))
        self._diary.append((f"{self.name}?", first, max_tokens, 0))
        return Sample(tokens, 10.0, 1.0, margins=margins)

    def peak_memory_mb(self) -> float | None:
        return 100.0 if self._own else None

    def close(self) -> None:
        self.closed = True
