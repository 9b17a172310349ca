"""Answering: one question on its way through draft, decision, lookup, answer and citations."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Sequence

from specrag.decoding.row import DecodingRequest, Row, RowUpdate
from specrag.decoding.submission import Submission
from specrag.gate.policy import GateDecision, RetrievalGate
from specrag.gate.signals import GateSignals, LookupSignals
from specrag.rag.answer import Answer, Timings, Usage
from specrag.rag.events import (
    CitationsEvent,
    DoneEvent,
    Event,
    GateEvent,
    PassagesEvent,
    TokenEvent,
)
from specrag.rag.parts import AnswerParts
from specrag.rag.prompt import PackedPrompt
from specrag.rag.question import Question
from specrag.rag.waiting import Waiter
from specrag.retrieval.document import ScoredPassage


class Answering:
    """One question on its way.

    As long as the closed-book beginning may be the answer it goes on being decoded, so that nothing
    has waited when it is.

    Args:
        parts: Engine, prompts, index and settings.
        waiter: How to wait for them.
        question: What is asked.
    """

    def __init__(self, parts: AnswerParts, waiter: Waiter, question: Question) -> None:
        self._parts = parts
        self._waiter = waiter
        self._question = question
        self._started = time.perf_counter()
        self._prompt = PackedPrompt(())
        self._lookup_ms = 0.0
        self._num_lookups = 0
        self._draft: Submission | None = None
        self._answer: Submission | None = None
        self._updates: list[RowUpdate] = []  # of the beginning, not yet shown
        self._draft_tokens = 0  # that the gate has seen

    async def events(self, gate: RetrievalGate) -> AsyncGenerator[Event, None]:
        """Yields what happens: gate, passages, tokens, citations, done.

        Args:
            gate: Decides.
        """
        try:
            decision, found = await self._decided(gate)
            submission = self._answer = self._answering(decision, found)
            yield GateEvent(decision)
            yield PassagesEvent(self._prompt.passages)
            for update in self._updates:
                if update.text:
                    yield TokenEvent(update.text)
            while (update_ := await self._waiter.update(submission)) is not None:
                if update_.text:
                    yield TokenEvent(update_.text)
            answer = self._finished(submission, decision)
        finally:
            self.cancel()
        yield CitationsEvent(answer.citations)
        yield DoneEvent(answer)

    async def signals(self) -> GateSignals:
        """Decodes the beginning of a closed-book answer and measures it."""
        submission = self._closed_book()
        while self._draft_tokens < self._parts.draft_tokens:
            update = await self._waiter.update(submission)
            if update is None:
                break
            self._updates.append(update)
            self._draft_tokens += len(update.token_ids)
        row = _row_of(submission)
        return await self._waiter.call(lambda: self._parts.signals_in(row, self._question.text))

    def cancel(self) -> None:
        """Frees the engine; harmless when all has ended."""
        for submission in (self._draft, self._answer):
            if submission is not None:
                submission.cancel()

    async def _decided(self, gate: RetrievalGate) -> tuple[GateDecision, Sequence[ScoredPassage]]:
        """Decides, looking up passages when the decision needs or wants them."""
        decision = gate.decide(await self.signals() if gate.reads_signals else None)
        if not decision.retrieve:
            return decision, ()
        if self._draft is not None and decision.zone != "unsure":
            self._draft.cancel()  # it will not be the answer: the lookup has the machine to itself
        started = time.perf_counter()
        found = await self._waiter.call(lambda: self._parts.lookup(self._question))
        self._lookup_ms = 1e3 * (time.perf_counter() - started)
        self._num_lookups += 1
        return gate.confirm(decision, LookupSignals.of(found)), found

    def _closed_book(self) -> Submission:
        question = self._question
        self._prompt = self._parts.prompts.closed_book(question.text, question.chat)
        self._draft = self._submitted(self._parts.closed_book_request(question))
        return self._draft

    def _submitted(self, request: DecodingRequest) -> Submission:
        """Hands a row to the engine, with what is left of the time."""
        left = self._question.timeout_s
        if left is not None:
            left = max(0.0, left - (time.perf_counter() - self._started))
        return self._parts.engine.submit(request, timeout_s=left)

    def _answering(self, decision: GateDecision, found: Sequence[ScoredPassage]) -> Submission:
        """Goes on with the closed-book answer, or begins one with the passages."""
        parts = self._parts
        if not decision.retrieve:
            # Mode never takes the same path, traced and all: its text is the same by construction.
            return self._draft or self._closed_book()
        if self._draft is not None:
            self._draft.cancel()
        question = self._question
        self._prompt = parts.prompts.with_passages(question.text, found, question.chat)
        self._updates.clear()
        request = parts.generator.request(self._prompt.messages, question.params)
        return self._submitted(request)

    def _finished(self, submission: Submission, decision: GateDecision) -> Answer:
        row = _row_of(submission)
        return self._parts.answer_of(
            row,
            self._question.text,
            self._prompt,
            decision,
            self._usage(row),
            self._timings(row),
            request_id=uuid.uuid4().hex,
        )

    def _usage(self, row: Row) -> Usage:
        return Usage(
            prompt_tokens=len(row.request.prompt_ids),
            completion_tokens=len(row.token_ids),
            context_tokens=self._prompt.context_tokens,
            lookups=self._num_lookups,
            draft_tokens=self._draft_tokens if self._draft is not self._answer else 0,
        )

    def _timings(self, row: Row) -> Timings:
        dropped = self._draft if self._draft is not self._answer else None
        gate = _row_of(dropped).timings if dropped else None
        return Timings.of(
            row.timings,
            num_later_tokens=len(row.token_ids) - 1,
            lookup_ms=self._lookup_ms,
            gate_ms=gate.prefill_ms + gate.decode_ms if gate else 0.0,
            total_ms=1e3 * (time.perf_counter() - self._started),
        )


def _row_of(submission: Submission) -> Row:
    assert submission.row is not None, "what has said something has a row"
    return submission.row
