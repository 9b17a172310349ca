"""SpeculativeGenerator: text in, the target's own text out, in fewer passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import SupportsIndex, cast

from transformers.generation.logits_process import LogitsProcessor

from specrag.decoding.budget import PassCosts, SpeculationConfig
from specrag.decoding.costs import costs_of
from specrag.decoding.drafter import Drafter, named_drafter
from specrag.decoding.noise import derived_seed
from specrag.decoding.row import DecodingRequest, Row, RowUpdate
from specrag.decoding.sampling import SamplingParams
from specrag.decoding.session import DecodingSession
from specrag.decoding.stats import DecodingStats, DecodingTimings
from specrag.decoding.stopping import FinishReason
from specrag.errors import ConfigError, InputError
from specrag.models.embedded import DEFAULT_TARGET, resolve
from specrag.models.loader import load_target
from specrag.models.prefix_cache import PrefixCache
from specrag.models.target import TargetModel
from specrag.models.tokenizer import Message, Tokenizer

Prompt = str | Sequence[Message] | Sequence[int]
"""Text to continue as it stands, a conversation, or token ids."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One answer.

    Attributes:
        text: The answer, special tokens and stop strings left out.
        token_ids: Its tokens, an end token included.
        logprobs: Natural log-probability of each token under the unprocessed target distribution.
        finish_reason: ``stop``, ``length`` or ``cancelled``.
        num_prompt_tokens: Length of the prompt.
        stats: What speculation did.
        timings: Where the time went; for the whole batch when there was one.
        seed: Seed of the draws: pass it again for the same answer.
        top_logprobs: For each token the most probable ones there with their log-probabilities,
            as many as asked for.
        others: The further samples of the prompt, when several were asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    num_prompt_tokens: int
    stats: DecodingStats
    timings: DecodingTimings
    seed: int
    top_logprobs: tuple[tuple[tuple[int, float], ...], ...] = ()
    others: tuple[Generation, ...] = ()

    @property
    def samples(self) -> tuple[Generation, ...]:
        """All samples of the prompt, this one first."""
        return (self, *self.others)


class SpeculativeGenerator:
    """Generates with a target and a drafter; the output is exactly the target's.

    Args:
        target: Decides every token.
        tokenizer: The target's tokenizer.
        drafter: Guesses tokens, changes speed only; an object or a registered name.
        config: How much to speculate.
        costs: What a pass of the target costs, to draft only what pays; None lets every draft
            through. ``from_pretrained`` measures it.
        prefix_cache: Keeps keys and values between requests; None keeps nothing.

    Raises:
        ConfigError: The drafter is unknown or cannot draft for this target.
    """

    def __init__(
        self,
        target: TargetModel,
        tokenizer: Tokenizer,
        drafter: str | Drafter,
        config: SpeculationConfig | None = None,
        costs: PassCosts | None = None,
        prefix_cache: PrefixCache | None = None,
    ) -> None:
        self.target = target
        self.tokenizer = tokenizer
        self.drafter = named_drafter(drafter) if isinstance(drafter, str) else drafter
        self.config = config or SpeculationConfig()
        self.costs = costs
        self.prefix_cache = prefix_cache
        if not target.no_speculation:
            self.drafter.bind(target, tokenizer, costs)

    @classmethod
    def from_pretrained(
        cls,
        target: str = DEFAULT_TARGET,
        drafter: str | Drafter = "suffix",
        *,
        dtype: str = "auto",
        device: str = "auto",
        quantization: str = "auto",
        config: SpeculationConfig | None = None,
        prefix_cache_mb: int = 256,
    ) -> SpeculativeGenerator:
        """Loads a target and makes a drafter for it.

        Args:
            target: An embedded name, a hub name, a local folder or a ``.gguf`` path.
            drafter: A registered name, or a drafter.
            dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``.
            device: ``auto`` or a torch device.
            quantization: ``auto``, ``none``, ``float16`` or ``int8``: how the weights are packed
                for a CPU.
            config: How much to speculate.
            prefix_cache_mb: Most memory, in MiB, for what prompts of later requests may share
                with earlier ones; 0 keeps nothing.

        Raises:
            ModelError: The target cannot be fetched or loaded.
            ConfigError: The drafter is unknown or cannot draft for this target, or the
                quantization is unknown or does not go with the rest.
        """
        kept = PrefixCache(prefix_cache_mb << 20) if prefix_cache_mb else None
        # The name is checked first: a typo should not cost the time of loading a model.
        guesser = named_drafter(drafter) if isinstance(drafter, str) else drafter
        source = resolve(target)
        tokenizer = Tokenizer.load(source)
        model = load_target(
            source, source.name, dtype=dtype, device=device, quantization=quantization
        )
        costs = costs_of(model, tokenizer, guesser, config)
        return cls(model, tokenizer, guesser, config, costs, kept)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | None = None,
        *,
        logits_processors: Sequence[LogitsProcessor] = (),
        cancelled: Callable[[], bool] | None = None,
    ) -> Generation | list[Generation]:
        """Generates one answer, or a batch of them in one go.

        Args:
            prompts: One prompt, or a list of prompts of any kind.
            params: How to choose tokens and when to end; greedy by default.
            logits_processors: The caller's own transformers processors, for every row.
            cancelled: Asked between passes; when it says true, every row ends as it is, with
                the finish reason ``cancelled``. ``threading.Event().is_set`` fits.

        Returns:
            A ``Generation`` for one prompt, a list of them for a batch.

        Raises:
            InputError: A prompt is empty or too long.
        """
        single = is_single(prompts)
        wanted = [cast("Prompt", prompts)] if single else cast("Sequence[Prompt]", prompts)
        found = self.generate_batch(
            wanted, params, logits_processors=logits_processors, cancelled=cancelled
        )
        return found[0] if single else found

    def generate_batch(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | None = None,
        *,
        logits_processors: Sequence[LogitsProcessor] = (),
        cancelled: Callable[[], bool] | None = None,
    ) -> list[Generation]:
        """Generates a batch, see ``generate``.

        Args:
            prompts: Prompts of any kind; may be none.
            params: The same for all rows.
            logits_processors: For every row.
            cancelled: Asked between passes.
        """
        if not prompts:
            return []
        requests = [
            sample
            for prompt in prompts
            for sample in self.samples(prompt, params, logits_processors=logits_processors)
        ]
        session = self.open(requests)
        try:
            while not session.finished:
                session.step()
                if cancelled is not None and cancelled():
                    for index in range(len(session.rows)):
                        session.cancel(index)
        finally:
            session.close()
        found = [result_of(row, session.timings) for row in session.rows]
        count = len(found) // len(prompts)
        return [
            replace(found[start], others=tuple(found[start + 1 : start + count]))
            for start in range(0, len(found), count)
        ]

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        logits_processors: Sequence[LogitsProcessor] = (),
    ) -> Iterator[RowUpdate]:
        """Generates one answer piece by piece.

        Closing the iterator early ends the work; pieces joined are the text of ``generate``.

        Args:
            prompt: One prompt.
            params: How to choose tokens and when to end; asks for one sample.
            logits_processors: The caller's own transformers processors.

        Yields:
            The new tokens and the new text of each round.

        Raises:
            ConfigError: Several samples are asked for.
        """
        requests = self.samples(prompt, params, logits_processors=logits_processors)
        if len(requests) > 1:
            raise ConfigError(
                f"a stream gives one sample, got n={len(requests)}",
                hint="open one stream a sample, or use generate",
            )
        session = self.open(requests)
        try:
            while not session.finished:
                yield session.step()[0]
        finally:
            session.close()

    def samples(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        logits_processors: Sequence[LogitsProcessor] = (),
    ) -> list[DecodingRequest]:
        """Returns one row for each sample that is asked for, with seeds of their own.

        The first sample has the given seed, so that it is the one that ``n=1`` gives.

        Args:
            prompt: One prompt of any kind.
            params: Their ``n`` says how many.
            logits_processors: The caller's own transformers processors.
        """
        wanted = params or SamplingParams()
        first = self.request(prompt, wanted, logits_processors=logits_processors)
        seed = wanted.seed
        return [
            replace(
                first,
                params=replace(wanted, seed=None if seed is None else derived_seed(seed, number)),
            )
            for number in range(wanted.n)
        ]

    def request(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        passages: Sequence[Sequence[int]] = (),
        num_traced: int = 0,
        logits_processors: Sequence[LogitsProcessor] = (),
    ) -> DecodingRequest:
        """Turns a prompt into a row of a session.

        Args:
            prompt: One prompt of any kind.
            params: How to choose tokens and when to end.
            passages: Token ids of texts that the answer may copy from.
            num_traced: Last prompt tokens to score; 0 records no trace.
            logits_processors: The caller's own transformers processors.
        """
        return DecodingRequest(
            tuple(self.prompt_ids(prompt)),
            params or SamplingParams(),
            tuple(tuple(passage) for passage in passages),
            num_traced,
            tuple(logits_processors),
        )

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """Returns the token ids of a prompt of any kind.

        Args:
            prompt: Text, messages or token ids.

        Raises:
            InputError: It is none of these.
        """
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt)
        parts = list(prompt) if isinstance(prompt, Sequence) else [None]
        if parts and all(isinstance(part, Mapping) for part in parts):
            return self.tokenizer.encode_chat(cast("Sequence[Message]", parts))
        if not all(isinstance(part, SupportsIndex) for part in parts):
            raise InputError(
                f"a prompt is a text, a list of messages or a list of token ids, got {prompt!r}",
                hint='such as "Hi" or [{"role": "user", "content": "Hi"}]',
            )
        return [index(part) for part in cast("list[SupportsIndex]", parts)]

    def open(self, requests: Sequence[DecodingRequest]) -> DecodingSession:
        """Starts a session that the caller steps through.

        Args:
            requests: The rows.
        """
        return DecodingSession(
            self.target,
            self.drafter,
            self.tokenizer,
            requests,
            self.config,
            self.costs,
            self.prefix_cache,
        )


def is_single(prompts: Prompt | Sequence[Prompt]) -> bool:
    """Tells one prompt from a list of prompts.

    Args:
        prompts: A text, a list of messages or of ids, or a list of such.
    """
    if isinstance(prompts, str) or not isinstance(prompts, Sequence):
        return True
    return len(prompts) > 0 and isinstance(prompts[0], int | Mapping)


def result_of(row: Row, timings: DecodingTimings) -> Generation:
    """Returns the answer of a row that has ended, or as far as it got.

    Args:
        row: A row of a session.
        timings: The session's.
    """
    return Generation(
        row.text,
        tuple(row.token_ids),
        tuple(row.logprobs),
        row.finish_reason or "length",
        len(row.request.prompt_ids),
        row.stats,
        timings,
        row.sampler.seed,
        tuple(row.top_logprobs),
    )
