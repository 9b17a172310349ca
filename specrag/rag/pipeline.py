"""The pipeline: draft, verify, decide, retrieve if needed, answer with citations."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from specrag.decoding.generator import SpeculativeGenerator
from specrag.decoding.row import DecodingRequest, Row, RowUpdate
from specrag.decoding.sampling import SamplingParams
from specrag.decoding.session import DecodingSession
from specrag.errors import InputError, SpecragError
from specrag.gate.policy import FixedGate, GateDecision, RetrievalGate
from specrag.gate.rules import rule_for
from specrag.gate.signals import GateSignals, LookupSignals, measure
from specrag.rag.answer import Answer, Timings, Usage
from specrag.rag.citations import cite
from specrag.rag.config import check_mode
from specrag.rag.events import (
    CitationsEvent,
    DoneEvent,
    Event,
    GateEvent,
    PassagesEvent,
    TokenEvent,
)
from specrag.rag.prompt import PackedPrompt, PromptBuilder
from specrag.retrieval.document import ScoredPassage
from specrag.retrieval.retriever import Retriever


@dataclass(slots=True)
class _Run:
    """One question on its way: the parts that the finished answer reports."""

    question: str
    params: SamplingParams
    k: int
    started: float = field(default_factory=time.perf_counter)
    request_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    prompt: PackedPrompt = field(default_factory=lambda: PackedPrompt(()))
    lookup_ms: float = 0.0
    lookups: int = 0
    draft: DecodingSession | None = None  # the closed-book beginning that the gate looked at
    updates: list[RowUpdate] = field(default_factory=list)  # of it, not yet shown


class Pipeline:
    """Answers questions from documents, asking them only when that may help.

    Its parts are given; ``specrag.rag.build.SpecRAG`` makes them from names.

    One question is answered at a time; further callers wait. ``stream`` holds the engine until
    its iterator is exhausted or closed.

    Args:
        generator: Target, tokenizer and drafter.
        prompts: Writes the prompts.
        retriever: Finds passages; None answers closed book only.
        gate: Decides in mode ``auto``; without one every question is looked up.
        params: How answers are generated.
        mode: The mode of questions that name none.
        k: Passages to look up.
        draft_tokens: Tokens of the closed-book beginning that the gate looks at.
        name: Of the pipeline.
    """

    def __init__(
        self,
        generator: SpeculativeGenerator,
        prompts: PromptBuilder,
        retriever: Retriever | None = None,
        gate: RetrievalGate | None = None,
        *,
        params: SamplingParams | None = None,
        mode: str = "auto",
        k: int = 3,
        draft_tokens: int = 16,
        name: str = "custom",
    ) -> None:
        check_mode(mode)
        self.generator = generator
        self.prompts = prompts
        self.retriever = retriever
        self.gate = gate or FixedGate(True, "No gate is configured, so the documents were asked.")
        self.params = params or SamplingParams()
        self.mode = mode
        self.k = k
        self.draft_tokens = draft_tokens
        self.name = name
        self._engine = threading.Lock()

    def ask(
        self,
        question: str,
        *,
        mode: str | None = None,
        k: int | None = None,
        params: SamplingParams | None = None,
    ) -> Answer:
        """Answers a question.

        Args:
            question: In plain words.
            mode: ``auto``, ``always`` or ``never``; the pipeline's own by default.
            k: Passages to look up.
            params: How to generate; the pipeline's own by default.

        Raises:
            InputError: The question is blank or too long for the target.
            ConfigError: The mode is unknown.
        """
        *_, last = self.stream(question, mode=mode, k=k, params=params)
        assert isinstance(last, DoneEvent), "a stream ends with its done event"
        return last.answer

    def stream(
        self,
        question: str,
        *,
        mode: str | None = None,
        k: int | None = None,
        params: SamplingParams | None = None,
    ) -> Iterator[Event]:
        """Answers a question piece by piece; the arguments are those of ``ask``.

        Arguments are checked before the first event. Token texts joined are the answer's text.

        Args:
            question: In plain words.
            mode: ``auto``, ``always`` or ``never``.
            k: Passages to look up.
            params: How to generate.

        Returns:
            An iterator over gate, passages, tokens, citations, done. Closing it early stops
            decoding.
        """
        chosen = self.mode if mode is None else mode
        check_mode(chosen)
        wanted = self.k if k is None else k
        if wanted < 1:
            raise InputError(f"k must be at least 1, got {wanted}")
        run = _Run(_stripped(question), params or self.params, wanted)
        return self._events(run, self.gate_for(chosen, run.question))

    def warm_up(self, *, wait: bool = True) -> None:
        """Loads what the first lookup would load, which takes seconds.

        Args:
            wait: Whether to return only when it is done; else a thread does it beside whatever
                comes next. A failure is left for the lookup, which then says what is wrong.
        """
        if self.retriever is None:
            return
        thread = threading.Thread(target=_warm_up, args=(self.retriever,), daemon=True)
        thread.start()
        if wait:
            thread.join()

    def explain(self, question: str) -> tuple[GateDecision, tuple[ScoredPassage, ...]]:
        """Returns the decision on a question without answering it.

        Args:
            question: In plain words.

        Returns:
            The decision, and the passages of its lookup if it made one.
        """
        events = self.stream(question)
        try:
            first, second = next(events), next(events)
        finally:
            events.close()  # type: ignore[attr-defined] # it is a generator
        assert isinstance(first, GateEvent), "a stream begins with its gate event"
        assert isinstance(second, PassagesEvent), "the passages come second"
        return first.decision, second.passages

    def signals_of(self, question: str) -> GateSignals:
        """Measures the closed-book beginning of a question, as the gate would see it.

        Args:
            question: In plain words.

        Raises:
            InputError: The question is blank or too long for the target.
        """
        run = _Run(_stripped(question), self.params, self.k)
        with self._engine:
            try:
                return self._draft(run)
            finally:
                if run.draft is not None:
                    run.draft.close()

    def gate_for(self, mode: str, question: str) -> RetrievalGate:
        """Returns what decides on a question: what the user fixed, then the rules, then the gate.

        Args:
            mode: ``auto``, ``always`` or ``never``.
            question: In plain words.
        """
        if self.retriever is None:
            return FixedGate(False, "There is no index, so nothing was looked up.")
        if mode == "never":
            return FixedGate(False, "Mode never: nothing was looked up.")
        if mode == "always":
            return FixedGate(True, "Mode always: the documents were asked.")
        return rule_for(question) or self.gate

    def _events(self, run: _Run, gate: RetrievalGate) -> Iterator[Event]:
        with self._engine:
            session: DecodingSession | None = None
            try:
                decision, found = self._decide(run, gate)
                session = self._answering_session(run, decision, found)
                yield GateEvent(decision)
                yield PassagesEvent(run.prompt.passages)
                for text in self._texts(run, session):
                    yield TokenEvent(text)
                closing = self._closing(run, session, decision)
            finally:
                for opened in (session, run.draft):
                    if opened is not None:
                        opened.close()
        # The engine is free again: whoever stops reading here holds up nobody.
        yield from closing

    def _decide(
        self, run: _Run, gate: RetrievalGate
    ) -> tuple[GateDecision, Sequence[ScoredPassage]]:
        """Decides, looking up passages when the decision needs or wants them."""
        decision = gate.decide(self._draft(run) if gate.reads_signals else None)
        if not decision.retrieve:
            return decision, ()
        assert self.retriever is not None, "without an index the gate is fixed to no lookup"
        started = time.perf_counter()
        found = self.retriever.retrieve(run.question, run.k)
        run.lookup_ms = 1e3 * (time.perf_counter() - started)
        run.lookups += 1
        return gate.confirm(decision, LookupSignals.of(found)), found

    def _draft(self, run: _Run) -> GateSignals:
        """Decodes the beginning of a closed-book answer and measures it."""
        session = self._closed_book(run)
        while not session.finished and session.rows[0].stats.num_tokens < self.draft_tokens:
            run.updates.append(session.step()[0])
        return self.signals_in(session.rows[0], run.question)

    def signals_in(self, row: Row, question: str) -> GateSignals:
        """Reads the gate's signals off the beginning of a closed-book answer.

        Args:
            row: It was made by ``closed_book_request`` and has begun.
            question: What was asked.
        """
        assert row.trace is not None, "the closed-book row is traced"
        return measure(
            row.trace,
            num_question=len(self.generator.tokenizer.encode(question)),
            num_tokens=self.draft_tokens,
            term_coverage=self.retriever.term_coverage(question) if self.retriever else 0.0,
        )

    def closed_book_request(self, question: str, params: SamplingParams) -> DecodingRequest:
        """Returns the row that answers a question without passages, traced for the gate.

        Args:
            question: What was asked.
            params: How to generate.
        """
        prompt = self.prompts.closed_book(question)
        num_traced = self.prompts.question_span(question)
        return self.generator.request(prompt.messages, params, num_traced=num_traced)

    def _closed_book(self, run: _Run) -> DecodingSession:
        run.prompt = self.prompts.closed_book(run.question)
        run.draft = self.generator.open([self.closed_book_request(run.question, run.params)])
        return run.draft

    def _answering_session(
        self, run: _Run, decision: GateDecision, found: Sequence[ScoredPassage]
    ) -> DecodingSession:
        """Goes on with the closed-book session, or opens one with the passages."""
        if not decision.retrieve:
            # Mode never takes the same path, traced and all: its text is the same by construction.
            return run.draft or self._closed_book(run)
        run.prompt = self.prompts.with_passages(run.question, found)
        run.updates.clear()
        return self.generator.open([self.generator.request(run.prompt.messages, run.params)])

    def _texts(self, run: _Run, session: DecodingSession) -> Iterator[str]:
        for update in run.updates:
            if update.text:
                yield update.text
        while not session.finished:
            text = session.step()[0].text
            if text:
                yield text

    def _closing(
        self, run: _Run, session: DecodingSession, decision: GateDecision
    ) -> tuple[CitationsEvent, DoneEvent]:
        row = session.rows[0]
        answer = self.answer_of(
            row,
            run.question,
            run.prompt,
            decision,
            self._usage(run, session),
            _timings(run, session),
            request_id=run.request_id,
        )
        return CitationsEvent(answer.citations), DoneEvent(answer)

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

    def _usage(self, run: _Run, session: DecodingSession) -> Usage:
        row = session.rows[0]
        dropped = run.draft if run.draft is not session else None
        return Usage(
            prompt_tokens=len(row.request.prompt_ids),
            completion_tokens=len(row.token_ids),
            context_tokens=run.prompt.context_tokens,
            lookups=run.lookups,
            draft_tokens=len(dropped.rows[0].token_ids) if dropped else 0,
        )


def _warm_up(retriever: Retriever) -> None:
    with contextlib.suppress(SpecragError):
        retriever.warm_up()


def _stripped(question: str) -> str:
    if not question.strip():
        raise InputError(f"the question is blank: {question!r}", hint="ask something")
    return question.strip()


def _timings(run: _Run, session: DecodingSession) -> Timings:
    spent = session.timings
    dropped = run.draft.timings if run.draft not in (None, session) else None
    gate_ms = dropped.prefill_ms + dropped.decode_ms if dropped else 0.0
    later = len(session.rows[0].token_ids) - 1
    return Timings(
        draft_ms=spent.draft_ms,
        verify_ms=spent.verify_ms,
        lookup_ms=run.lookup_ms,
        prefill_ms=spent.prefill_ms,
        decode_ms=spent.decode_ms,
        gate_ms=gate_ms,
        total_ms=1e3 * (time.perf_counter() - run.started),
        tokens_per_second=1e3 * later / spent.decode_ms if spent.decode_ms else 0.0,
    )
