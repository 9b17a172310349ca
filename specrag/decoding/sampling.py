"""Sampling parameters, and the choice of the next token from the target's logits."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from transformers.generation.logits_process import (
    LogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from specrag.decoding.noise import Stream, draw, finite_best
from specrag.decoding.processors import (
    CountPenaltyLogitsProcessor,
    MinTokensLogitsProcessor,
    with_custom,
)
from specrag.errors import ConfigError

_FRACTIONS = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty") + (
    "frequency_penalty",
)


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
        presence_penalty: Taken once from the score of each token of the answer, as OpenAI's API
            does; from -2 to 2.
        frequency_penalty: Taken from a token's score for each time that the answer holds it.
        min_tokens: Tokens of an answer before which nothing ends it: end tokens and stop tokens
            cannot be chosen, and stop texts that are complete by then do not count.
        logit_bias: Added to the logits of tokens, as a mapping of token id to bias or as pairs;
            kept as pairs in the order of the ids. Minus infinity forbids a token.
        top_logprobs: Most probable tokens to report beside each chosen one.
        n: Answers to give to one prompt.
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
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_tokens: int = 0
    logit_bias: Mapping[int, float] | tuple[tuple[int, float], ...] = ()
    top_logprobs: int = 0
    n: int = 1

    def __post_init__(self) -> None:
        self._check_types()
        # Lists come from JSON; a single text would otherwise be taken for its letters.
        stop: Sequence[str] | str = self.stop
        object.__setattr__(self, "stop", (stop,) if isinstance(stop, str) else tuple(stop))
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids))
        # Pairs instead of a mapping, so that parameters can be compared and hashed.
        object.__setattr__(self, "logit_bias", _bias_pairs(self.logit_bias))
        self._check_choice()
        self._check_length()

    def _check_types(self) -> None:
        for name in ("top_k", "max_tokens", "min_tokens", "top_logprobs", "n"):
            _require(type(getattr(self, name)) is int, name, getattr(self, name), "a whole number")
        _require(self.seed is None or type(self.seed) is int, "seed", self.seed, "a whole number")
        for name in _FRACTIONS:
            value = getattr(self, name)
            is_number = type(value) in (int, float) and math.isfinite(value)
            _require(is_number, name, value, "a finite number")
        for name, kind in (("stop", str), ("stop_token_ids", int)):
            values = getattr(self, name)
            listed = [values] if isinstance(values, str) else values
            good = isinstance(listed, Iterable) and all(type(value) is kind for value in listed)
            _require(good, name, values, f"a list of {'texts' if kind is str else 'token ids'}")

    def _check_choice(self) -> None:
        _require(self.temperature >= 0, "temperature", self.temperature, "0 (greedy) or more")
        _require(0 < self.top_p <= 1, "top_p", self.top_p, "above 0 and at most 1")
        _require(self.top_k >= 0, "top_k", self.top_k, "0 (off) or more")
        _require(0 <= self.min_p <= 1, "min_p", self.min_p, "from 0 to 1")
        _require(
            self.repetition_penalty > 0, "repetition_penalty", self.repetition_penalty, "above 0"
        )
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            _require(-2 <= value <= 2, name, value, "from -2 to 2")
        _require(self.top_logprobs >= 0, "top_logprobs", self.top_logprobs, "0 (none) or more")

    def _check_length(self) -> None:
        _require(self.max_tokens >= 1, "max_tokens", self.max_tokens, "1 or more")
        _require(
            0 <= self.min_tokens <= self.max_tokens,
            "min_tokens",
            self.min_tokens,
            f"from 0 to max_tokens ({self.max_tokens})",
        )
        _require(self.n >= 1, "n", self.n, "1 or more")
        _require(all(self.stop), "stop", self.stop, "texts that are not empty")

    @property
    def is_greedy(self) -> bool:
        """Whether the most probable token is always taken."""
        return self.temperature == 0


def _require(holds: bool, name: str, value: object, allowed: str) -> None:
    if not holds:
        raise ConfigError(f"{name} must be {allowed}, got {value!r}")


def _bias_pairs(
    given: Mapping[int, float] | Iterable[tuple[int, float]],
) -> tuple[tuple[int, float], ...]:
    """Brings a bias into its one form, sorted by token."""
    try:
        pairs = sorted((token, float(bias)) for token, bias in dict(given).items())
    except (TypeError, ValueError):
        pairs = [(-1, math.nan)]
    for token, bias in pairs:
        _require(
            type(token) is int and token >= 0 and bias < math.inf,
            "logit_bias",
            given,
            "a mapping of token ids (0 or more) to numbers (or minus infinity)",
        )
    return tuple(pairs)


class TokenSampler:
    """Chooses the next token of one row, a function of logits, history, seed and position only.

    Because a draw depends on nothing else, decoding with and without speculation gives the same
    tokens for the same seed.

    Args:
        params: The row's sampling parameters.
        prompt_length: Tokens of the prompt; penalties on the answer and ``min_tokens`` start
            behind it.
        end_token_ids: The model's own end tokens, which ``min_tokens`` holds off unless
            ``ignore_eos`` makes them tokens like any other.
        processors: A user's transformers logits processors, of ``[1, vocab]`` scores. Each must
            be a function of the token ids and scores that it is given: draft trees ask about
            tokens that may be rejected, so one that counts its calls would go wrong.
    """

    def __init__(
        self,
        params: SamplingParams,
        *,
        prompt_length: int = 0,
        end_token_ids: Iterable[int] = (),
        processors: Iterable[LogitsProcessor] = (),
    ) -> None:
        self.seed = secrets.randbits(63) if params.seed is None else params.seed
        self.is_greedy = params.is_greedy
        custom = tuple(processors)
        ends = {*params.stop_token_ids, *(() if params.ignore_eos else end_token_ids)}
        self._processors = with_custom(_penalties(params, prompt_length, sorted(ends)), custom)
        self._processors += [] if params.is_greedy else _warpers(params)
        self._bias = dict(params.logit_bias)
        # Custom processors may write into what they are given, which is the model's own output.
        self._copies = bool(custom)

    @property
    def is_plain_argmax(self) -> bool:
        """Whether the choice is the largest logit, whatever the history."""
        return self.is_greedy and not self._processors

    def check(self, vocab_size: int) -> None:
        """Refuses parameters that name tokens the model does not have.

        Args:
            vocab_size: Logits of a node.

        Raises:
            ConfigError: ``logit_bias`` names such a token.
        """
        unknown = [token for token in self._bias if token >= vocab_size]
        if unknown:
            raise ConfigError(
                f"logit_bias names token {unknown[0]}, but the model has {vocab_size} tokens, "
                f"0 to {vocab_size - 1}",
                hint="take the token ids from the tokenizer of this model",
            )

    def process(self, logits: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
        """Applies biases, penalties and truncation in the order of transformers' ``generate``.

        ``logit_bias``, repetition penalty, presence and frequency penalties (transformers has
        none), ``min_tokens``, the user's processors, temperature, ``top_k``, ``top_p``,
        ``min_p``; greedy ends with the user's.

        Args:
            logits: ``[vocab]`` of one node, as the model gave them.
            history: ``[length]`` token ids of the prompt and all tokens before the choice.

        Returns:
            Scores ``[vocab]`` in float32; excluded tokens have minus infinity.

        Raises:
            ConfigError: ``logit_bias`` names a token that the model does not have.
        """
        if self._bias:
            self.check(len(logits))
        scores = logits.to(torch.float32, copy=self._copies).unsqueeze(0)
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

        Raises:
            ConfigError: No token is left to choose from.
            ModelError: The logits are not numbers.
        """
        scores = self.process(logits, history).double()
        finite_best(scores)
        if self.is_greedy:
            return torch.nn.functional.one_hot(scores.argmax(), len(scores)).double()
        return torch.softmax(scores, dim=-1)

    def choose(
        self,
        logits: torch.Tensor,
        history: torch.Tensor,
        position: int,
        stream: Stream = Stream.TARGET,
    ) -> int:
        """Returns the token at a position.

        Args:
            logits: ``[vocab]`` of the node before the position.
            history: ``[length]`` token ids before the position.
            position: Absolute position of the token, prompt included.
            stream: ``TARGET`` for the target, and for a drafter that wants to agree with it;
                ``DRAFT`` for a drafter whose tokens are verified by rejection sampling.

        Raises:
            ConfigError: No token is left to choose from.
            ModelError: The logits are not numbers.
        """
        if self.is_plain_argmax:
            return int(logits.argmax())
        scores = self.process(logits, history)
        if self.is_greedy:
            finite_best(scores)
            return int(scores.argmax())
        return draw(scores, self.seed, position, stream)


def _penalties(
    params: SamplingParams, prompt_length: int, end_token_ids: Sequence[int]
) -> list[LogitsProcessor]:
    """Lists the processors that act greedy or not."""
    processors: list[LogitsProcessor] = []
    if params.logit_bias:
        bias = {(token,): value for token, value in dict(params.logit_bias).items()}
        processors.append(SequenceBiasLogitsProcessor(bias))
    if params.repetition_penalty != 1.0:
        processors.append(RepetitionPenaltyLogitsProcessor(float(params.repetition_penalty)))
    if params.presence_penalty or params.frequency_penalty:
        counts = (params.presence_penalty, params.frequency_penalty)
        processors.append(CountPenaltyLogitsProcessor(*counts, prompt_length))
    if params.min_tokens and end_token_ids:
        processors.append(MinTokensLogitsProcessor(prompt_length, params.min_tokens, end_token_ids))
    return processors


def _warpers(params: SamplingParams) -> list[LogitsProcessor]:
    """Lists the processors that act on sampling only."""
    processors: list[LogitsProcessor] = []
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
