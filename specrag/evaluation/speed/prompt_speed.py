"""What one arm did with one prompt, over the rounds: medians, and where it left plain decoding."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from specrag.decoding.stats import DecodingStats
from specrag.evaluation.speed.arm import Sample
from specrag.evaluation.speed.measure import DecodedPrompt
from specrag.evaluation.speed.prompts import SpeedPrompt


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """Where an answer first differs from the plain one.

    Attributes:
        id: Of the prompt.
        position: Of the token in the answer, from 0.
        margin: By how much probability plain decoding's best token led there; None if unknown.
        tokens: Plain decoding's token and the other; None where an answer had ended.
    """

    id: str
    position: int
    margin: float | None
    tokens: tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class PromptSpeed:
    """The figures of one arm and one prompt.

    Attributes:
        prompt: The prompt.
        num_tokens: Tokens of the answer.
        prefill_ms: Median over the rounds; None where the arm cannot tell.
        decode_ms: Median over the rounds.
        steps: Time and tokens of each pass of all rounds.
        stats: Counters of the round of median time; None for other engines.
        mean_acceptance_length: Of that round; None where the arm cannot tell.
        difference: None where the answers of all rounds are plain decoding's.
    """

    prompt: SpeedPrompt
    num_tokens: int
    prefill_ms: float | None
    decode_ms: float
    steps: tuple[tuple[float, int], ...]
    stats: DecodingStats | None
    mean_acceptance_length: float | None
    difference: FirstDifference | None

    @property
    def num_later(self) -> int:
        """Tokens after the first, which are those of ``decode_ms``."""
        return self.num_tokens - 1

    @property
    def total_ms(self) -> float | None:
        """Prefill and decoding."""
        return None if self.prefill_ms is None else self.prefill_ms + self.decode_ms

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens after the first per second after the first; None where there are none."""
        if self.num_later < 1 or not self.decode_ms:
            return None
        return 1e3 * self.num_later / self.decode_ms


def prompt_speed(
    decoded: DecodedPrompt, arm: str, plain: str, end_token_ids: Collection[int] = ()
) -> PromptSpeed:
    """Sums up the rounds of one arm.

    Args:
        decoded: What all arms made of the prompt.
        arm: Name of one that did not fail there.
        plain: Name of the arm that it is held against.
        end_token_ids: Tokens that end an answer.
    """
    samples = decoded.samples[arm]
    middle = sorted(samples, key=lambda sample: sample.decode_ms)[(len(samples) - 1) // 2]
    prefills = [sample.prefill_ms for sample in samples if sample.prefill_ms is not None]
    return PromptSpeed(
        decoded.prompt,
        len(middle.token_ids),
        statistics.median(prefills) if prefills else None,
        statistics.median(sample.decode_ms for sample in samples),
        tuple(
            step
            for sample in samples
            for step in zip(sample.step_ms, sample.step_tokens, strict=True)
        ),
        middle.stats,
        middle.mean_acceptance_length,
        _difference(decoded, samples, decoded.samples[plain][0], end_token_ids),
    )


def _difference(
    decoded: DecodedPrompt, samples: Sequence[Sample], plain: Sample, ends: Collection[int]
) -> FirstDifference | None:
    for sample in samples:
        position = _first_difference(sample, plain, ends)
        if position is None:
            continue
        seen = decoded.seen
        told = position < len(seen.margins) and (
            seen.token_ids[:position] == plain.token_ids[:position]
        )
        tokens = [
            answer.token_ids[position] if position < len(answer.token_ids) else None
            for answer in (plain, sample)
        ]
        return FirstDifference(
            decoded.prompt.id,
            position,
            seen.margins[position] if told else None,
            (tokens[0], tokens[1]),
        )
    return None


def _first_difference(sample: Sample, plain: Sample, ends: Collection[int]) -> int | None:
    mine, other = sample.token_ids, plain.token_ids
    if sample.stats is None and other and other[-1] in ends:
        # Other engines reach a fixed length by forbidding the end token, also as the last one.
        mine, other = mine[: len(other) - 1], other[:-1]
    if mine == other:
        return None
    same = (a == b for a, b in zip(mine, other, strict=False))
    return next((at for at, equal in enumerate(same) if not equal), min(len(mine), len(other)))
