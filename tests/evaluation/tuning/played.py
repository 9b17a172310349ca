"""Arms that play made-up times, a clock that they move, and rows of figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specrag.decoding.budget import PassCosts
from specrag.decoding.stats import DecodingStats
from specrag.decoding.tree import DraftTree
from specrag.errors import ModelError
from specrag.evaluation.speed.arm import ReferenceArm, Sample
from specrag.evaluation.speed.prompts import SpeedPrompt
from specrag.evaluation.tuning.candidate import Candidate, Result

COSTS = PassCosts((1, 2, 4, 8, 16, 32), (1.0, 1.05, 1.1, 1.2, 1.5, 2.2))
LENGTH = 33  # tokens of every answer
_TOKEN_MS = 10.0


def prompts(count: int) -> list[SpeedPrompt]:
    return [SpeedPrompt(f"q{number}", "own", None, (number,)) for number in range(count)]


@dataclass
class World:
    """What candidates do here, and what has been decoded so far.

    Attributes:
        speed: Multiple of plain decoding's speed, by candidate and prompt.
        accepted: Drafted tokens that are accepted in each pass, by drafter.
        failing: Names of candidates that give up, and the prompt that they do it at.
        now: Seconds that decoding has taken.
        decoded: Name of the arm and number of the prompt, in order.
    """

    speed: Callable[[Candidate, int], float]
    accepted: Mapping[str, int] = field(default_factory=dict)
    failing: Mapping[str, int] = field(default_factory=dict)
    now: float = 0.0
    decoded: list[tuple[str, int]] = field(default_factory=list)

    def open(self, candidate: Candidate) -> PlayedArm:
        return PlayedArm(self, candidate)

    def clock(self) -> float:
        return self.now

    @property
    def plain(self) -> PlayedArm:
        return PlayedArm(self, None)


class PlayedArm(ReferenceArm):
    """Plain decoding of a world, or one of its candidates."""

    def __init__(self, world: World, candidate: Candidate | None) -> None:
        self.name = candidate.name if candidate else "none"
        self.details: dict[str, str] = {}
        self._world, self._candidate = world, candidate

    def decode(self, prompt_ids: Sequence[int], max_tokens: int, min_tokens: int = 0) -> Sample:
        world, candidate, number = self._world, self._candidate, prompt_ids[0]
        if number == world.failing.get(self.name):
            raise ModelError("it gave up")
        size = max(min_tokens, min(max_tokens, LENGTH))
        speed = world.speed(candidate, number) if candidate else 1.0
        stats = DecodingStats(num_tokens=1)
        if candidate:
            tree = DraftTree.chain([1] * candidate.num_speculative_tokens)
            most = min(world.accepted.get(candidate.drafter, 1), len(tree))
            while stats.num_tokens < size:
                path = range(min(most, size - stats.num_tokens - 1))
                stats.record(tree, path, len(path) + 1)
        time = _TOKEN_MS * (size - 1) / speed
        world.now += time / 1e3
        world.decoded.append((self.name, number))
        return Sample(
            tuple(range(size)), 0.0, time, (time,), (size - 1,), stats, stats.mean_acceptance_length
        )

    def look(self, prompt_ids: Sequence[int], max_tokens: int) -> Sample:
        return self.decode(prompt_ids, max_tokens)

    def peak_memory_mb(self) -> float | None:
        return None

    def close(self) -> None: ...


def result(
    candidate: Candidate, speedup: float, around: float | None = 0.05, num_prompts: int = 5
) -> Result:
    """A candidate with a speedup and an interval of that width to both sides."""
    row: dict[str, Any] = {
        "tokens_per_second": 100 * speedup,
        "speedup": speedup,
        "speedup_low": None if around is None else speedup - around,
        "speedup_high": None if around is None else speedup + around,
        "mean_acceptance_length": 1.5,
        "num_prompts": num_prompts,
        "equal_share": 1.0,
        "acceptance": 0.5,
        "acceptance_by_depth": [0.5, 0.25],
        "speculation": {
            "num_drafts": 100,
            "num_draft_tokens": 200,
            "num_accepted_tokens": 75,
            "num_accepted_tokens_per_pos": [50, 25],
        },
    }
    return Result(candidate, row)
