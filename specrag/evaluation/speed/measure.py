"""The protocol: every arm decodes every prompt in turn, several times, to the same length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from specrag.errors import SpecragError
from specrag.evaluation.speed.arm import Arm, ReferenceArm, Sample
from specrag.evaluation.speed.prompts import SpeedPrompt

Progress = Callable[[int, int], None]
"""Told how many answers are decoded and how many there will be."""


@dataclass(frozen=True, slots=True)
class DecodedPrompt:
    """What the arms made of one prompt.

    Attributes:
        prompt: The prompt.
        seen: The plain answer with its margins, not timed.
        samples: One sample a round by the name of the arm; an arm that failed here is not there.
    """

    prompt: SpeedPrompt
    seen: Sample
    samples: dict[str, list[Sample]]


@dataclass(frozen=True, slots=True)
class ArmFailure:
    """An arm that gave up, and was left out from then on.

    Attributes:
        arm: Its name.
        prompt_id: Where it happened; its prompts before that count.
        message: What it said.
    """

    arm: str
    prompt_id: str
    message: str


class DonePrompts:
    """What an earlier run has done, and whoever keeps what this one does; here nobody.

    Attributes:
        prompts: What it made of the first prompts; they are not decoded again.
        failures: Of the arms that gave up in it; they stay out.
    """

    def __init__(self) -> None:
        self.prompts: list[DecodedPrompt] = []
        self.failures: list[ArmFailure] = []

    def keep(self, found: DecodedPrompt, failures: Sequence[ArmFailure]) -> None:
        """Keeps one more prompt.

        Args:
            found: What the arms made of it.
            failures: Of the arms that gave up since the prompt before it.
        """


@dataclass(slots=True)
class SpeedRun:
    """All that a run brought.

    Attributes:
        plain: Name of the arm that the others are held against.
        arms: Names of all arms, that one first.
        prompts: In the order of the run.
        failures: Arms that did not come to the end.
        memory_mb: Peak memory by arm, where it is known.
        details: What to know about each arm.
    """

    plain: str
    arms: tuple[str, ...]
    prompts: list[DecodedPrompt] = field(default_factory=list)
    failures: list[ArmFailure] = field(default_factory=list)
    memory_mb: dict[str, float | None] = field(default_factory=dict)
    details: dict[str, dict[str, str]] = field(default_factory=dict)


def measure_speed(
    plain: ReferenceArm,
    others: Sequence[Arm],
    prompts: Sequence[SpeedPrompt],
    *,
    max_tokens: int = 128,
    rounds: int = 3,
    warm_ups: int = 1,
    same_length: bool = True,
    done: DonePrompts | None = None,
    on_progress: Progress = lambda done, total: None,
) -> SpeedRun:
    """Lets all arms decode all prompts, one after the other.

    Interleaved prompt by prompt, so that whatever else the machine does slows all of them alike;
    the order turns with each prompt and round. An arm that fails is left out from there on.

    Args:
        plain: Plain decoding; it also fixes how long each answer is.
        others: What is held against it.
        prompts: What to decode, at least one.
        max_tokens: Most tokens of an answer.
        rounds: Times that everything is decoded.
        warm_ups: Times that each arm first decodes the first prompt for nothing.
        same_length: Whether each arm decodes as many tokens as plain decoding does to its own end;
            else each goes to its own end.
        done: By an earlier run, and told of each prompt that this one does.
        on_progress: Told after each answer.

    Raises:
        SpecragError: Plain decoding failed.
    """
    arms: list[Arm] = [plain, *others]
    names = tuple(arm.name for arm in arms)
    assert len(set(names)) == len(names), "the names of arms must differ"
    done = done or DonePrompts()
    run = SpeedRun(plain.name, names, list(done.prompts), list(done.failures))
    left, num_kept = prompts[len(run.prompts) :], len(run.failures)
    turns = _Turns(run, arms, on_progress, warm_ups + rounds * len(left))
    for _ in range(warm_ups if left else 0):
        turns.round(prompts[0], max_tokens, 0, 0)
    for turn, prompt in enumerate(left, start=len(run.prompts)):
        seen = plain.look(prompt.token_ids, max_tokens)
        length = len(seen.token_ids) if same_length else max_tokens
        least = length if same_length else 0
        found = [turns.round(prompt, length, least, turn + round_) for round_ in range(rounds)]
        made = {arm.name: [samples[arm.name] for samples in found] for arm in turns.live}
        run.prompts.append(DecodedPrompt(prompt, seen, made))
        done.keep(run.prompts[-1], run.failures[num_kept:])
        num_kept = len(run.failures)
    run.memory_mb = {arm.name: arm.peak_memory_mb() for arm in turns.live}
    run.details = {arm.name: arm.details for arm in arms}
    return run


class _Turns:
    """Lets the arms that are left decode in turn, and counts."""

    def __init__(
        self, run: SpeedRun, arms: list[Arm], on_progress: Progress, num_rounds: int
    ) -> None:
        out = {failure.arm for failure in run.failures}
        self.live = [arm for arm in arms if arm.name not in out]
        self._run = run
        self._on_progress = on_progress
        self._rounds_left = num_rounds
        self._done = 0
        self._total = len(self.live) * num_rounds

    def round(
        self, prompt: SpeedPrompt, max_tokens: int, min_tokens: int, turn: int
    ) -> dict[str, Sample]:
        """Returns one sample of each arm that did not fail."""
        shift = turn % len(self.live)
        samples: dict[str, Sample] = {}
        self._rounds_left -= 1
        for arm in self.live[shift:] + self.live[:shift]:
            try:
                samples[arm.name] = arm.decode(prompt.token_ids, max_tokens, min_tokens)
            except SpecragError as error:
                if arm.name == self._run.plain:
                    raise
                self._run.failures.append(ArmFailure(arm.name, prompt.id, error.message))
                self._total -= self._rounds_left
            self._done += 1
            self._on_progress(self._done, self._total)
        self.live = [arm for arm in self.live if arm.name in samples]
        return samples
