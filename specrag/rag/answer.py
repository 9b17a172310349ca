"""What a question gives back, in the one JSON shape of command line, server and library."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from specrag.decoding.stats import DecodingStats, DecodingTimings
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

    @classmethod
    def of(
        cls,
        spent: DecodingTimings,
        *,
        num_later_tokens: int,
        lookup_ms: float,
        total_ms: float,
        gate_ms: float = 0.0,
        share: float = 1.0,
    ) -> Timings:
        """Returns the times of an answer.

        Args:
            spent: Of the decoding.
            num_later_tokens: Tokens behind the first, of all answers that ``spent`` covers.
            lookup_ms: Milliseconds of the lookup.
            total_ms: Milliseconds from question to last token.
            gate_ms: Milliseconds of a beginning that was dropped.
            share: Part of all times but ``gate_ms`` that is this answer's, for one of a batch.
        """
        decode_ms = spent.decode_ms
        return cls(
            draft_ms=spent.draft_ms * share,
            verify_ms=spent.verify_ms * share,
            lookup_ms=lookup_ms * share,
            prefill_ms=spent.prefill_ms * share,
            decode_ms=decode_ms * share,
            gate_ms=gate_ms,
            total_ms=total_ms * share,
            tokens_per_second=1e3 * num_later_tokens / decode_ms if decode_ms else 0.0,
        )


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
