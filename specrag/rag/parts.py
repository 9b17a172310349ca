"""AnswerParts: what an answer is made with, and the steps of it that take no time to speak of."""

from __future__ import annotations

import threading

from specrag.decoding.engine import DecodingEngine
from specrag.decoding.engine_limits import EngineLimits
from specrag.decoding.generator import SpeculativeGenerator
from specrag.decoding.row import DecodingRequest, Row
from specrag.gate.policy import GateDecision
from specrag.gate.signals import GateSignals, measure
from specrag.rag.answer import Answer, Timings, Usage
from specrag.rag.citations import cite
from specrag.rag.prompt import PackedPrompt, PromptBuilder
from specrag.rag.question import Question
from specrag.retrieval.document import ScoredPassage
from specrag.retrieval.retriever import Retriever


class AnswerParts:
    """Engine, prompts and index.

    Args:
        generator: Target, tokenizer and drafter.
        prompts: Writes the prompts.
        retriever: Finds passages; None answers closed book only.
        draft_tokens: Tokens of the closed-book beginning that the gate looks at.
        name: Of the pipeline.
        limits: How many questions are answered together, and how many may wait.
    """

    def __init__(
        self,
        generator: SpeculativeGenerator,
        prompts: PromptBuilder,
        retriever: Retriever | None,
        *,
        draft_tokens: int,
        name: str,
        limits: EngineLimits | None = None,
    ) -> None:
        self.generator = generator
        self.prompts = prompts
        self.retriever = retriever
        self.draft_tokens = draft_tokens
        self.name = name
        self.engine = DecodingEngine(generator, limits)
        self._lookup = threading.Lock()

    def lookup(self, question: Question) -> list[ScoredPassage]:
        """Asks the index; one question at a time.

        Args:
            question: What is asked.
        """
        assert self.retriever is not None, "without an index the gate is fixed to no lookup"
        with self._lookup:
            return list(self.retriever.retrieve(question.text, question.k, question.where))

    def signals_in(self, row: Row, question: str) -> GateSignals:
        """Reads the gate's signals off the beginning of a closed-book answer.

        Args:
            row: It was made by ``closed_book_request`` and has begun.
            question: What was asked.
        """
        assert row.trace is not None, "the closed-book row is traced"
        with self._lookup:
            coverage = self.retriever.term_coverage(question) if self.retriever else 0.0
        return measure(
            row.trace,
            num_question=len(self.generator.tokenizer.encode(question)),
            num_tokens=self.draft_tokens,
            term_coverage=coverage,
        )

    def closed_book_request(self, question: Question) -> DecodingRequest:
        """Returns the row that answers a question without passages, traced for the gate.

        Args:
            question: What is asked.
        """
        prompt = self.prompts.closed_book(question.text, question.chat)
        num_traced = self.prompts.question_span(question.text)
        return self.generator.request(prompt.messages, question.params, num_traced=num_traced)

    def answer_of(
        self,
        row: Row,
        question: str,
        prompt: PackedPrompt,
        decision: GateDecision,
        usage: Usage,
        timings: Timings,
        *,
        request_id: str,
    ) -> Answer:
        """Makes the answer of a decoded row.

        Args:
            row: It has ended.
            question: What was asked.
            prompt: What the row was decoded from.
            decision: The gate's.
            usage: Tokens and lookups.
            timings: Where the time went.
            request_id: Of the answer.
        """
        return Answer(
            text=row.text,
            citations=cite(question, row.text, prompt.passages),
            gate=decision,
            usage=usage,
            speculation=row.stats,
            timings=timings,
            drafter=self.generator.drafter.name,
            model=self.generator.target.name,
            pipeline=self.name,
            index=self.retriever.name if self.retriever else "",
            index_version=self.retriever.index_version if self.retriever else "",
            request_id=request_id,
            finish_reason=row.finish_reason or "length",
        )
