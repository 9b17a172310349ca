"""SpeculativeGenerator: text in, the target's own text out, in fewer passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from specrag.decoding.budget import PassCosts, SpeculationConfig
from specrag.decoding.costs import known_costs
from specrag.decoding.drafter import Drafter, named_drafter
from specrag.decoding.row import DecodingRequest, Row, RowUpdate
from specrag.decoding.sampling import SamplingParams
from specrag.decoding.session import DecodingSession
from specrag.decoding.stats import DecodingStats, DecodingTimings
from specrag.decoding.stopping import FinishReason
from specrag.models.embedded import DEFAULT_TARGET, resolve
from specrag.models.huggingface import HuggingFaceTarget
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
        finish_reason: ``stop`` or ``length``.
        num_prompt_tokens: Length of the prompt.
        stats: What speculation did.
        timings: Where the time went; for the whole batch when there was one.
        seed: Seed of the draws: pass it again for the same answer.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    num_prompt_tokens: int
    stats: DecodingStats
    timings: DecodingTimings
    seed: int


class SpeculativeGenerator:
    """Generates with a target and a drafter; the output is exactly the target's.

    Args:
        target: Decides every token.
        tokenizer: The target's tokenizer.
        drafter: Guesses tokens, changes speed only; an object or a registered name.
        config: How much to speculate.
        costs: What a pass of the target costs, to draft only what pays; None lets every draft
            through. ``from_pretrained`` measures it.
    """

    def __init__(
        self,
        target: TargetModel,
        tokenizer: Tokenizer,
        drafter: str | Drafter,
        config: SpeculationConfig | None = None,
        costs: PassCosts | None = None,
    ) -> None:
        self.target = target
        self.tokenizer = tokenizer
        self.drafter = named_drafter(drafter) if isinstance(drafter, str) else drafter
        self.config = config or SpeculationConfig()
        self.costs = costs

    @classmethod
    def from_pretrained(
        cls,
        target: str = DEFAULT_TARGET,
        drafter: str | Drafter = "suffix",
        *,
        dtype: str = "auto",
        device: str = "auto",
        config: SpeculationConfig | None = None,
    ) -> SpeculativeGenerator:
        """Loads a target and makes a drafter for it.

        Args:
            target: An embedded name, a hub name, a local folder or a ``.gguf`` path.
            drafter: A registered name, or a drafter.
            dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``.
            device: ``auto`` or a torch device.
            config: How much to speculate.

        Raises:
            ModelError: The target cannot be fetched or loaded.
            ConfigError: The drafter is unknown.
        """
        # The name is checked first: a typo should not cost the time of loading a model.
        guesser = named_drafter(drafter) if isinstance(drafter, str) else drafter
        source = resolve(target)
        tokenizer = Tokenizer.load(source)
        model = HuggingFaceTarget.load(source, source.name, dtype=dtype, device=device)
        return cls(model, tokenizer, guesser, config, known_costs(model))

    def generate(
        self, prompts: Prompt | Sequence[Prompt], params: SamplingParams | None = None
    ) -> Generation | list[Generation]:
        """Generates one answer, or a batch of them in one go.

        Args:
            prompts: One prompt, or a list of prompts of any kind.
            params: How to choose tokens and when to end; greedy by default.

        Returns:
            A ``Generation`` for one prompt, a list of them for a batch.

        Raises:
            InputError: A prompt is empty or too long.
        """
        if is_single(prompts):
            return self.generate_batch([cast("Prompt", prompts)], params)[0]
        return self.generate_batch(cast("Sequence[Prompt]", prompts), params)

    def generate_batch(
        self, prompts: Sequence[Prompt], params: SamplingParams | None = None
    ) -> list[Generation]:
        """Generates a batch, see ``generate``.

        Args:
            prompts: Prompts of any kind; may be none.
            params: The same for all rows.
        """
        if not prompts:
            return []
        session = self.open([self.request(prompt, params) for prompt in prompts])
        try:
            while not session.finished:
                session.step()
        finally:
            session.close()
        return [result_of(row, session.timings) for row in session.rows]

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Iterator[RowUpdate]:
        """Generates one answer piece by piece.

        Closing the iterator early ends the work; pieces joined are the text of ``generate``.

        Args:
            prompt: One prompt.
            params: How to choose tokens and when to end.

        Yields:
            The new tokens and the new text of each round.
        """
        session = self.open([self.request(prompt, params)])
        try:
            while not session.finished:
                yield session.step()[0]
        finally:
            session.close()

    def request(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        passages: Sequence[Sequence[int]] = (),
        num_traced: int = 0,
    ) -> DecodingRequest:
        """Turns a prompt into a row of a session.

        Args:
            prompt: One prompt of any kind.
            params: How to choose tokens and when to end.
            passages: Token ids of texts that the answer may copy from.
            num_traced: Last prompt tokens to score; 0 records no trace.
        """
        return DecodingRequest(
            tuple(self.prompt_ids(prompt)),
            params or SamplingParams(),
            tuple(tuple(passage) for passage in passages),
            num_traced,
        )

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """Returns the token ids of a prompt of any kind.

        Args:
            prompt: Text, messages or token ids.
        """
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt)
        if prompt and isinstance(prompt[0], Mapping):
            return self.tokenizer.encode_chat(cast("Sequence[Message]", prompt))
        return list(cast("Sequence[int]", prompt))

    def open(self, requests: Sequence[DecodingRequest]) -> DecodingSession:
        """Starts a session that the caller steps through.

        Args:
            requests: The rows.
        """
        return DecodingSession(
            self.target, self.drafter, self.tokenizer, requests, self.config, self.costs
        )


def is_single(prompts: Prompt | Sequence[Prompt]) -> bool:
    """Tells one prompt from a list of prompts.

    Args:
        prompts: A text, a list of messages or of ids, or a list of such.
    """
    return isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], int | Mapping))


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
    )
