"""What ``SpecRAG.stream`` yields, in order: gate, passages, tokens, citations, done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from specrag.gate.policy import GateDecision
from specrag.rag.answer import Answer
from specrag.rag.citations import Citation
from specrag.retrieval.document import ScoredPassage


@dataclass(frozen=True, slots=True)
class GateEvent:
    """The final decision; always the first event."""

    decision: GateDecision
    type: ClassVar[str] = "gate"

    def to_dict(self) -> dict[str, Any]:
        """Returns the event's JSON shape."""
        return self.decision.to_dict()


@dataclass(frozen=True, slots=True)
class PassagesEvent:
    """The passages in the prompt, best first; empty when none is used."""

    passages: tuple[ScoredPassage, ...]
    type: ClassVar[str] = "passages"

    def to_dict(self) -> dict[str, Any]:
        """Returns the event's JSON shape."""
        return {
            "passages": [
                {
                    "document": found.passage.document,
                    "passage": found.passage.id,
                    "page": found.passage.page,
                    "line": found.passage.line,
                    "start": found.passage.start,
                    "end": found.passage.end,
                    "heading": found.passage.heading,
                    "score": round(found.score, 4),
                    "text": found.passage.text,
                }
                for found in self.passages
            ]
        }


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """New text of the answer, complete characters only."""

    text: str
    type: ClassVar[str] = "token"

    def to_dict(self) -> dict[str, Any]:
        """Returns the event's JSON shape."""
        return {"text": self.text}


@dataclass(frozen=True, slots=True)
class CitationsEvent:
    """What the answer stands on; the same as in the finished answer."""

    citations: tuple[Citation, ...]
    type: ClassVar[str] = "citations"

    def to_dict(self) -> dict[str, Any]:
        """Returns the event's JSON shape."""
        return {"citations": [citation.to_dict() for citation in self.citations]}


@dataclass(frozen=True, slots=True)
class DoneEvent:
    """The whole answer; always the last event."""

    answer: Answer
    type: ClassVar[str] = "done"

    def to_dict(self) -> dict[str, Any]:
        """Returns the event's JSON shape."""
        return self.answer.to_dict()


Event = GateEvent | PassagesEvent | TokenEvent | CitationsEvent | DoneEvent
