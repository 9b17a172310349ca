"""The contract of an arm: one way to decode a prompt, which a benchmark holds against others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from specrag.decoding.stats import DecodingStats


@dataclass(frozen=True, slots=True)
class Sample:
    """One decoded prompt.

    Attributes:
        token_ids: The answer, greedy; an end token included.
        prefill_ms: Evaluating the prompt, first token included; None where an arm cannot tell.
        decode_ms: All after the first token.
        step_ms: Time of each pass after prefill; empty where an arm cannot tell.
        step_tokens: Tokens that each of these passes emitted.
        stats: Counters of speculation; None for other engines.
        mean_acceptance_length: Tokens emitted per pass; None where an arm cannot tell.
        margins: Probability of the best token minus that of the second at each token of the
            answer; empty where an arm was not asked to look or cannot.
    """

    token_ids: tuple[int, ...]
    prefill_ms: float | None
    decode_ms: float
    step_ms: tuple[float, ...] = ()
    step_tokens: tuple[int, ...] = ()
    stats: DecodingStats | None = None
    mean_acceptance_length: float | None = None
    margins: tuple[float, ...] = ()


class Arm(ABC):
    """One way to decode: plain decoding, a drafter, or another engine.

    Attributes:
        name: Unique in a run, such as ``none``, ``suffix`` or ``peer:llama.cpp``.
        details: What to know when its figures are read: version, precision, settings.
    """

    name: str
    details: dict[str, str]

    @abstractmethod
    def decode(self, prompt_ids: Sequence[int], max_tokens: int, min_tokens: int = 0) -> Sample:
        """Decodes one prompt greedily; nothing is kept for the next one.

        Args:
            prompt_ids: Token ids of the prompt, the same for every arm.
            max_tokens: Most tokens of the answer.
            min_tokens: Fewest tokens before an end; equal to ``max_tokens`` it fixes the length.
                Whether the last token may be an end token then is left to the arm.

        Raises:
            SpecragError: The arm cannot decode.
        """

    @abstractmethod
    def peak_memory_mb(self) -> float | None:
        """Returns the most memory that the arm's process has held so far, in MiB, if known."""

    @abstractmethod
    def close(self) -> None:
        """Ends what the arm has started; it cannot be used afterwards."""


class ReferenceArm(Arm):
    """An arm that others are held against: it can also tell how close its choices were."""

    @abstractmethod
    def look(self, prompt_ids: Sequence[int], max_tokens: int) -> Sample:
        """Decodes one prompt as ``decode`` does, to its own end, with ``margins``; not for timing.

        Args:
            prompt_ids: Token ids of the prompt.
            max_tokens: Most tokens of the answer.
        """
