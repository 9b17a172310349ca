"""What goes in and out over HTTP. The answer's shape is that of ``Answer.to_dict``."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from specrag.rag.config import MODES
from specrag.rag.pipeline import Pipeline
from specrag.rag.question import AskOptions
from specrag.retrieval.filters import Filter

MAX_QUESTION_LENGTH = 8000
MAX_PASSAGES = 50
MAX_TURN_LENGTH = 32_000
MAX_TURNS = 100
MAX_TOKENS = 8192  # memory is set aside for all of them before the first is generated

Mode = Annotated[str, Field(json_schema_extra={"enum": list(MODES)})]


FilterScalar = str | int | float | bool
FilterOperand = FilterScalar | list[FilterScalar] | dict[str, FilterScalar | list[FilterScalar]]


class Turn(BaseModel):
    """An earlier turn of the conversation."""

    model_config = ConfigDict(extra="forbid", strict=True)

    role: Literal["user", "assistant"]
    content: str = Field(max_length=MAX_TURN_LENGTH)


class RetrieveRequest(BaseModel):
    """What to look up. What is left out is as the pipeline says."""

    # Strict: "3" is not 3. Ranges of sampling parameters are checked where they are defined.
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    question: str = Field(min_length=1, max_length=MAX_QUESTION_LENGTH)
    k: int | None = Field(default=None, ge=1, le=MAX_PASSAGES, description="Passages to look up.")
    filters: dict[str, FilterOperand] | None = Field(
        default=None,
        description="Fields of the documents and what they must be: a value, a list of values "
        'of which one fits, or operators such as {">=": 2020}.',
    )

    def options(self, rag: Pipeline) -> AskOptions:
        """Returns the options of the request for a pipeline.

        Args:
            rag: Its defaults hold where the request says nothing.

        Raises:
            InputError: A filter or a turn cannot be used.
            ConfigError: A sampling parameter is out of its range.
        """
        where = Filter.of(self.filters) if self.filters is not None else None
        return {"k": self.k, "where": where}


class GateRequest(RetrieveRequest):
    """A question whose decision is wanted."""

    mode: Mode | None = Field(
        default=None, description="Whether the gate decides about the lookup."
    )
    system_prompt: str | None = Field(
        default=None, max_length=MAX_TURN_LENGTH, description="Instead of the pipeline's own."
    )
    history: list[Turn] = Field(
        default=[], max_length=MAX_TURNS, description="Earlier turns, the oldest first."
    )
    timeout_s: float | None = Field(
        default=None, gt=0, description="Most seconds that it may take, waiting included."
    )

    def options(self, rag: Pipeline) -> AskOptions:
        """Returns the options of the request, see ``RetrieveRequest``.

        Args:
            rag: Its defaults hold where the request says nothing.
        """
        return {
            **super().options(rag),
            "mode": self.mode,
            "system": self.system_prompt,
            "history": [turn.model_dump() for turn in self.history],
            "timeout_s": self.timeout_s,
        }


class AskRequest(GateRequest):
    """A question. What is left out is as the pipeline says."""

    stream: bool = Field(default=False, description="Answer as server-sent events.")
    return_passages: bool = Field(
        default=False, description="Give the passages of the prompt with the answer."
    )
    max_tokens: int | None = Field(
        default=None, ge=1, le=MAX_TOKENS, description="Most tokens of the answer."
    )
    temperature: float | None = Field(default=None, description="0 is greedy.")
    top_p: float | None = Field(default=None, description="Probability mass kept, 1.0 keeps all.")
    top_k: int | None = Field(default=None, description="Most probable tokens kept, 0 keeps all.")
    seed: int | None = Field(default=None, description="Seed of the random draws.")
    stop: list[str] | None = Field(default=None, description="Texts that end the answer.")

    def options(self, rag: Pipeline) -> AskOptions:
        """Returns the options of the request, see ``RetrieveRequest``.

        Args:
            rag: Its defaults hold where the request says nothing.
        """
        names = {"max_tokens", "temperature", "top_p", "top_k", "seed", "stop"}
        params = replace(rag.params, **self.model_dump(include=names, exclude_none=True))
        return {**super().options(rag), "params": params}


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class CitationShape(_Shape):
    """A passage that supports the answer."""

    n: int
    document: str
    passage: int
    page: int | None
    line: int | None
    start: int
    end: int
    score: float
    quote: str


class PassageShape(_Shape):
    """A passage of a document."""

    document: str
    passage: int
    page: int | None
    line: int | None
    start: int
    end: int
    heading: str | None
    score: float
    text: str


class GateShape(_Shape):
    """The decision that led to the answer."""

    retrieve: bool
    reason: str
    p_without: float | None
    p_with: float | None
    threshold: float | None
    zone: Literal["confident", "unsure", "needed", "fixed"]
    signals: dict[str, int | float]
    fingerprint: str


class UsageShape(_Shape):
    """Tokens and lookups."""

    prompt_tokens: int
    completion_tokens: int
    context_tokens: int
    lookups: int
    draft_tokens: int


class DraftingShape(_Shape):
    """Counters of one drafter, or of one kind of text."""

    num_passes: int
    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int


class SpeculationShape(DraftingShape):
    """Counters of all drafters together, and by drafter and kind of text."""

    num_accepted_tokens_per_pos: list[int]
    num_tokens: int
    num_cached_tokens: int
    num_unsent_tokens: int
    num_switched_off: int
    num_off_passes: int
    num_probes: int
    num_ahead_drafts: int
    num_ahead_kept: int
    drafters: dict[str, DraftingShape]
    domains: dict[str, DraftingShape]
    mean_acceptance_length: float


class TimingsShape(_Shape):
    """Milliseconds of each stage."""

    draft_ms: float
    verify_ms: float
    lookup_ms: float
    prefill_ms: float
    decode_ms: float
    gate_ms: float
    total_ms: float
    tokens_per_second: float


class AskResponse(_Shape):
    """An answer with its sources and statistics."""

    answer: str
    citations: list[CitationShape]
    gate: GateShape
    usage: UsageShape
    speculation: SpeculationShape
    timings: TimingsShape
    finish_reason: Literal["stop", "length", "cancelled"]
    model: str
    pipeline: str
    index: str
    index_version: str
    request_id: str
    passages: list[PassageShape] | None = Field(
        default=None, description="In the prompt, best first, when they were asked for."
    )


class RetrieveResponse(_Shape):
    """What a lookup found, best first."""

    passages: list[PassageShape]
    index: str
    index_version: str


class GateResponse(_Shape):
    """A decision, and what the lookup found if it made one."""

    gate: GateShape
    passages: list[PassageShape]
    index: str
    index_version: str


class HealthResponse(_Shape):
    """That the server is alive, and what it serves."""

    status: Literal["ok"]
    version: str
    pipeline: str
    model: str
    index: str
    index_version: str


class ReadyResponse(_Shape):
    """That the server takes questions, and how busy it is."""

    status: Literal["ready"]
    running: int
    waiting: int


class Problem(_Shape):
    """An error, as RFC 9457 describes it."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    hint: str | None = Field(default=None, description="What to do next.")
    errors: list[dict[str, str]] | None = Field(
        default=None, description="For each field that cannot be used: field and message."
    )
