"""Candidates beside plain decoding on the same prompts, within a time; slow ones drop out."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from specrag.evaluation.speed.arm import Arm, ReferenceArm
from specrag.evaluation.speed.figures import ALL, speed_figures
from specrag.evaluation.speed.measure import SpeedRun, measure_speed
from specrag.evaluation.speed.prompts import SpeedPrompt
from specrag.evaluation.tuning.candidate import Candidate, Result

OpenArm = Callable[[Candidate], Arm]
"""Makes the arm of a candidate, which bears its name."""

Progress = Callable[[str, int, int], None]
"""Told what is being measured, how many answers of it are decoded and how many there will be."""

LEAST_PROMPTS = 2  # of one prompt there is no interval


class Race:
    """Measures within a time; what does not fit into it is left out, never hurried.

    Args:
        plain: Plain decoding.
        open_arm: Makes the arms of candidates.
        prompts: The user's.
        max_tokens: Most tokens of an answer.
        seconds: Time for everything.
        end_token_ids: Tokens that end an answer.
        seed: Of the intervals.
        clock: Tells the time in seconds.
        on_progress: Told after each answer.
    """

    def __init__(
        self,
        plain: ReferenceArm,
        open_arm: OpenArm,
        prompts: Sequence[SpeedPrompt],
        *,
        max_tokens: int = 128,
        seconds: float = 600.0,
        end_token_ids: Collection[int] = (),
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
        on_progress: Progress = lambda stage, done, total: None,
    ) -> None:
        self.prompts = prompts
        self.notes: list[str] = []
        self._plain = plain
        self._open_arm = open_arm
        self._max_tokens = max_tokens
        self._seconds = seconds
        self._ends, self._seed = end_token_ids, seed
        self._clock, self._on_progress = clock, on_progress
        self._begun = clock()
        plain.look(prompts[0].token_ids, max_tokens)
        self._pace = clock() - self._begun  # seconds an answer

    def rounds_within(self, share: float, num_candidates: int, num_prompts: int) -> float:
        """Returns how often some prompts can be decoded until a share of the time is over.

        Args:
            share: Of the whole time.
            num_candidates: Beside plain decoding.
            num_prompts: Prompts of a round.
        """
        left = self._begun + share * self._seconds - self._clock()
        # Plain decoding comes twice: it also says beforehand how long each answer is.
        each = self._pace * num_prompts * (num_candidates + 2)
        return math.inf if each <= 0 else max(0.0, left) / each

    def measure(
        self, stage: str, candidates: Sequence[Candidate], prompts: Sequence[SpeedPrompt],
        rounds: int = 1,
        warm_ups: int = 0,
    ) -> SpeedRun:  # fmt: skip
        """Lets candidates and plain decoding decode prompts in turn.

        Args:
            stage: For the progress.
            candidates: With different names.
            prompts: At least one.
            rounds: Times that everything is decoded.
            warm_ups: Answers that each decodes first for nothing.
        """
        arms = [self._open_arm(candidate) for candidate in candidates]
        begun = self._clock()
        run = measure_speed(
            self._plain,
            arms,
            prompts,
            max_tokens=self._max_tokens,
            rounds=rounds,
            warm_ups=warm_ups,
            on_progress=lambda done, total: self._on_progress(stage, done, total),
        )
        # Plain decoding looks at each prompt beside what is timed.
        answers = (len(arms) + 1) * (warm_ups + rounds * len(prompts)) + len(prompts)
        self._pace = (self._clock() - begun) / answers
        self.notes += [f"{failure.arm} failed: {failure.message}" for failure in run.failures]
        return run

    def results(self, run: SpeedRun, candidates: Sequence[Candidate]) -> list[Result]:
        """Returns the figures of the candidates that did not fail, the fastest first.

        Args:
            run: They were measured in it.
            candidates: Which of them to return.
        """
        rows = {row["drafter"]: row for row in self.rows(run)}
        failed = {failure.arm for failure in run.failures}
        done = [
            Result(candidate, rows[candidate.name])
            for candidate in candidates
            if candidate.name in rows and candidate.name not in failed
        ]
        return sorted(done, key=lambda result: -result.speedup)

    def rows(self, run: SpeedRun) -> list[dict[str, object]]:
        """Returns the figures of all arms over all prompts, plain decoding's first.

        Args:
            run: Of this race.
        """
        figures = speed_figures(run, end_token_ids=self._ends, seed=self._seed)
        return [row for row in figures["results"] if row["category"] == ALL]


def all_of(
    race: Race,
    stage: str,
    candidates: Sequence[Candidate],
    *,
    until: float,
    least: int = LEAST_PROMPTS,
    warm_ups: int = 0,
) -> SpeedRun:
    """Measures candidates once on all prompts, or on as many as the time allows.

    Args:
        race: Measures.
        stage: For the progress and the notes.
        candidates: All of them are measured.
        until: Share of the time after which this ends, if the fewest prompts fit into it.
        least: Fewest prompts.
        warm_ups: Answers that each decodes first for nothing.
    """
    room = race.rounds_within(until, len(candidates), 1) - warm_ups
    count = len(race.prompts) if room >= len(race.prompts) else max(least, int(room))
    if count < len(race.prompts):
        race.notes.append(
            f"{stage} were measured on {count} of {len(race.prompts)} prompts, for lack of time"
        )
    return race.measure(stage, candidates, race.prompts[:count], warm_ups=warm_ups)


def halving(
    race: Race, stage: str, candidates: Sequence[Candidate], *, keep: int, until: float
) -> tuple[SpeedRun, list[Candidate]]:
    """Measures many candidates on a few prompts, then the faster half on more, and so on.

    Successive halving (Jamieson and Talwalkar, 2016): most of the time goes to what is fast.

    Args:
        race: Measures.
        stage: For the progress and the notes.
        candidates: What is likeliest to win first; the last ones are left out for lack of time.
        keep: Ends when no more than these are left.
        until: Share of the time after which it ends.

    Returns:
        Everything that was measured, and the candidates that are left, the fastest first.
    """
    total = len(race.prompts)
    block = max(LEAST_PROMPTS, math.ceil(total / 4))
    live = list(candidates)
    # How many candidates one round over the first prompts has time for.
    room = race.rounds_within(until, 0, LEAST_PROMPTS) * 2 - 2
    if room < len(live):
        block = LEAST_PROMPTS
        left_out = live[max(keep, int(room)) :]
        live = live[: max(keep, int(room))]
        if left_out:
            race.notes.append(_cut(left_out))
    elif race.rounds_within(until, len(live), block) < 1:
        block = LEAST_PROMPTS
    merged: SpeedRun | None = None
    place = 0
    while True:
        run = race.measure(stage, live, race.prompts[place : place + block])
        merged = run if merged is None else _joined(merged, run)
        place += block
        ranked = [result.candidate for result in race.results(merged, live)]
        half = ranked[: max(keep, math.ceil(len(ranked) / 2))]
        block = min(2 * block, total - place)
        if len(ranked) <= keep or not block or race.rounds_within(until, len(half), block) < 1:
            return merged, ranked
        live = half


def _cut(left_out: Sequence[Candidate]) -> str:
    counts = Counter(candidate.drafter for candidate in left_out)
    parts = ", ".join(f"{count} of {drafter}" for drafter, count in counts.items())
    return f"{len(left_out)} settings were not measured, for lack of time: {parts}"


def _joined(first: SpeedRun, second: SpeedRun) -> SpeedRun:
    """Returns both as one; the second has other prompts, and none of new arms."""
    return SpeedRun(
        first.plain,
        first.arms,
        first.prompts + second.prompts,
        first.failures + second.failures,
        {**first.memory_mb, **second.memory_mb},
        {**first.details, **second.details},
    )
