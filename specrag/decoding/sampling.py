"""Sampling parameters, and the choice of the next token from the target's logits."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers.generation.logits_process import (
    LogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from specrag.errors import ConfigError

_MASK64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen and when an answer ends.

    Attributes:
        temperature: 0 takes the most probable token (greedy); higher is more random.
        top_p: Keep the smallest set of tokens with this much probability; 1.0 keeps all.
        top_k: Keep the k most probable tokens; 0 keeps all.
        min_p: Drop tokens less probable than this share of the most probable one.
        repetition_penalty: Above 1.0 makes tokens of prompt and answer less likely.
        max_tokens: Most tokens of an answer.
        stop: Texts that end an answer; they are not part of it.
        stop_token_ids: Tokens that end an answer, besides the model's own.
        ignore_eos: Go on after the model's end token; for measurements.
        seed: Seed of the draws; None takes a new one for each answer.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None

    def __post_init__(self) -> None:
        # Lists come from JSON; a single text would otherwise be taken for its letters.
        stop: Sequence[str] | str = self.stop
        object.__setattr__(self, "stop", (stop,) if isinstance(stop, str) else tuple(stop))
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids))
        _require(self.temperature >= 0, "temperature", self.temperature, "0 (greedy) or more")
        _require(0 < self.top_p <= 1, "top_p", self.top_p, "above 0 and at most 1")
        _require(self.top_k >= 0, "top_k", self.top_k, "0 (off) or more")
        _require(0 <= self.min_p <= 1, "min_p", self.min_p, "from 0 to 1")
        _require(
            self.repetition_penalty > 0, "repetition_penalty", self.repetition_penalty, "above 0"
        )
        _require(self.max_tokens >= 1, "max_tokens", self.max_tokens, "1 or more")
        _require(all(self.stop), "stop", self.stop, "texts that are not empty")

    @property
    def is_greedy(self) -> bool:
        """Whether the most probable token is always taken."""
        return self.temperature == 0


def _require(holds: bool, name: str, value: object, allowed: str) -> None:
    if not holds:
        raise ConfigError(f"{name} must be {allowed}, got {value!r}")


class TokenSampler:
    """Chooses the next token of one row, a function of logits, history, seed and position only.

    Because a draw depends on nothing else, decoding with and without speculation gives the same
    tokens for the same seed.

    Args:
        params: The row's sampling parameters.
    """

    def __init__(self, params: SamplingParams) -> None:
        self.seed = secrets.randbits(63) if params.seed is None else params.seed
        self.is_greedy = params.is_greedy
        self._processors = _processors(params)

    @property
    def is_plain_argmax(self) -> bool:
        """Whether the choice is the largest logit, whatever the history."""
        return self.is_greedy and not self._processors

    def process(self, logits: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
        """Applies penalties and truncation in transformers' order.

        Args:
            logits: ``[vocab]`` of one node, as the model gave them.
            history: ``[length]`` token ids of the prompt and all tokens before the choice.

        Returns:
            Scores ``[vocab]`` in float32; excluded tokens have minus infinity.
        """
        scores = logits.float().unsqueeze(0)
        before = history.to(logits.device).unsqueeze(0)
        # Not as a LogitsProcessorList: that inspects each processor's signature on every call.
        for processor in self._processors:
            scores = processor(before, scores)
        return scores.squeeze(0)

    def target_probs(self, logits: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
        """Returns the distribution that the next token is drawn from.

        Args:
            logits: ``[vocab]``.
            history: ``[length]``.

        Returns:
            Probabilities ``[vocab]`` in float64.
        """
        scores = self.process(logits, history).double()
        if self.is_greedy:
            return torch.nn.functional.one_hot(scores.argmax(), len(scores)).double()
        return torch.softmax(scores, dim=-1)

    def choose(self, logits: torch.Tensor, history: torch.Tensor, position: int) -> int:
        """Returns the token at a position.

        Args:
            logits: ``[vocab]`` of the node before the position.
            history: ``[length]`` token ids before the position.
            position: Absolute position of the token, prompt included.
        """
        if self.is_greedy:
            scores = self.process(logits, history) if self._processors else logits
            return int(scores.argmax())
        cumulative = self.target_probs(logits, history).cumsum(-1)
        threshold = uniform(self.seed, position) * float(cumulative[-1])
        # side="right": the first token whose cumulative mass exceeds the threshold, so a token
        # of probability 0 is never drawn, not even for a threshold of 0.
        index = int(torch.searchsorted(cumulative, threshold, side="right"))
        return min(index, int(torch.searchsorted(cumulative, cumulative[-1])))


def uniform(seed: int, position: int) -> float:
    """Returns a number in [0, 1) that depends on seed and position alone.

    SplitMix64 (Steele, Lea and Flood 2014) used as a counter-based generator.

    Args:
        seed: Any integer.
        position: Absolute position of the token to draw.
    """
    state = _mix((seed & _MASK64) ^ 0x5DEECE66D5DEECE6)
    return (_mix((state + (position + 1) * 0x9E3779B97F4A7C15) & _MASK64) >> 11) * 2.0**-53


def _mix(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK64
    return value ^ (value >> 31)


def _processors(params: SamplingParams) -> list[LogitsProcessor]:
    """Lists the processors in the order of transformers' ``generate``."""
    processors: list[LogitsProcessor] = []
    if params.repetition_penalty != 1.0:
        processors.append(RepetitionPenaltyLogitsProcessor(params.repetition_penalty))
    if params.is_greedy:
        return processors
    if params.temperature != 1.0:
        processors.append(TemperatureLogitsWarper(float(params.temperature)))
    if params.top_k:
        processors.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1.0:
        processors.append(TopPLogitsWarper(params.top_p))
    if params.min_p:
        processors.append(MinPLogitsWarper(params.min_p))
    return processors


class TokenHistory:
    """The tokens of one row as a growing tensor, so that processors need no copy.

    Args:
        token_ids: The prompt.
        capacity: Tokens to reserve.
        device: Where the logits lie.
    """

    def __init__(
        self, token_ids: Sequence[int], capacity: int, device: torch.device | None = None
    ) -> None:
        size = max(capacity, len(token_ids))
        self._storage = torch.zeros(size, dtype=torch.long, device=device)
        self._storage[: len(token_ids)] = torch.tensor(list(token_ids), dtype=torch.long)
        self.length = len(token_ids)

    def append(self, token_id: int) -> None:
        """Adds a token at the end.

        Args:
            token_id: A token of the vocabulary.
        """
        if self.length == len(self._storage):
            self._storage = torch.cat([self._storage, torch.zeros_like(self._storage)])
        self._storage[self.length] = token_id
        self.length += 1

    def truncate(self, length: int) -> None:
        """Forgets the tokens behind a length.

        Args:
            length: Tokens to keep.
        """
        self.length = min(self.length, length)

    def view(self) -> torch.Tensor:
        """Returns the tokens ``[length]``, without copying."""
        return self._storage[: self.length]
