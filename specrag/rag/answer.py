"""What a question gives back, in the one JSON shape of command line, server and library."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from specrag.decoding.stats import DecodingStats
from specrag.decoding.stopping import FinishReason
from specrag.gate.policy import GateDecision
from specrag.rag.citations import Citation


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and lookups of one answer.

    Attributes:
        prompt_tokens: Tokens of the prompt that was answered from.
        completion_tokens: Tokens of the answer.
        context_tokens: Prompt tokens that are passages.
        lookups: Searches made in the index.
        draft_tokens: Tokens of a closed-book beginning that was dropped for a retrieved answer.
    """

    prompt_tokens: int
    completion_tokens: int
    context_tokens: int
    lookups: int
    draft_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Timings:
    """Wall clock of one answer in milliseconds, unless named otherwise.

    Attributes:
        draft_ms: Proposing tokens.
        verify_ms: Passes of the target after prefill.
        lookup_ms: Encoding the question and searching.
        prefill_ms: Evaluating the prompt that was answered from, first token included.
        decode_ms: All after the first token of the answer: draft and verify.
        gate_ms: The closed-book beginning that was dropped for a retrieved answer, its prefill
            included; 0 when the answer goes on from it.
        total_ms: From question to last token.
        tokens_per_second: Tokens of the answer after the first, per second of ``decode_ms``.
    """

    draft_ms: float
    verify_ms: float
    lookup_ms: float
    prefill_ms: float
    decode_ms: float
    gate_ms: float
    total_ms: float
    tokens_per_second: float


@dataclass(frozen=True, slots=True)
class Answer:
    """One answered question.

    Attributes:
        text: The answer.
        citations: What it stands on; empty without passages.
        gate: The decision that led to it.
        usage: Tokens and lookups.
        speculation: Counters of the answer's decoding.
        timings: Where the time went.
        drafter: Name of the drafter.
        model: Name of the target.
        pipeline: Name of the pipeline.
        index: Name of the index, empty without one.
        index_version: Its version, empty without one.
        request_id: Unique to this answer.
        finish_reason: ``stop``, ``length`` or ``cancelled``.
    """

    text: str
    citations: tuple[Citation, ...]
    gate: GateDecision
    usage: Usage
    speculation: DecodingStats
    timings: Timings
    drafter: str
    model: str
    pipeline: str
    index: str
    index_version: str
    request_id: str
    finish_reason: FinishReason

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON shape that the command line and the server print."""
        return {
            "answer": self.text,
            "citations": [citation.to_dict() for citation in self.citations],
            "gate": self.gate.to_dict(),
            "usage": asdict(self.usage),
            "speculation": self.speculation.to_dict(),
            "timings": {name: round(value, 2) for name, value in asdict(self.timings).items()},
            "finish_reason": self.finish_reason,
            "model": self.model,
            "pipeline": self.pipeline,
            "index": self.index,
            "index_version": self.index_version,
            "request_id": self.request_id,
        }
