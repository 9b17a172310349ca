"""The pipeline: draft, verify, decide, retrieve if needed, answer with citations."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from types import TracebackType
from typing import Self, Unpack

from specrag.decoding.engine_limits import EngineLimits
from specrag.decoding.generator import SpeculativeGenerator
from specrag.decoding.sampling import SamplingParams
from specrag.errors import SpecragError
from specrag.gate.policy import FixedGate, GateDecision, RetrievalGate
from specrag.gate.rules import rule_for
from specrag.gate.signals import GateSignals
from specrag.models.tokenizer import Message
from specrag.rag.answer import Answer
from specrag.rag.answering import Answering
from specrag.rag.config import check_mode
from specrag.rag.events import DoneEvent, Event, GateEvent, PassagesEvent
from specrag.rag.parts import AnswerParts
from specrag.rag.prompt import PromptBuilder
from specrag.rag.question import AskOptions, Chat, Question
from specrag.rag.waiting import BlockingWaiter, TaskWaiter, Waiter, iterate_blocking, run_blocking
from specrag.retrieval.document import ScoredPassage
from specrag.retrieval.filters import Filter
from specrag.retrieval.retriever import Retriever


class Pipeline(AnswerParts):
    """Answers questions from documents, asking them only when that may help.

    Its parts are given; ``specrag.rag.build.SpecRAG`` makes them from names.

    Any number of threads and tasks may ask: an engine decodes their answers together. Closing the
    pipeline, or leaving its ``with`` block, ends what is under way.

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
        limits: How many questions are answered together, and how many may wait.
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
        limits: EngineLimits | None = None,
    ) -> None:
        check_mode(mode)
        super().__init__(
            generator, prompts, retriever, draft_tokens=draft_tokens, name=name, limits=limits
        )
        self.gate = gate or FixedGate(True, "No gate is configured, so the documents were asked.")
        self.params = params or SamplingParams()
        self.mode = mode
        self.k = k

    def ask(self, question: str, **options: Unpack[AskOptions]) -> Answer:
        """Answers a question.

        Args:
            question: In plain words.
            **options: See ``AskOptions``.

        Raises:
            InputError: The question is blank or too long for the target.
            ConfigError: The mode is unknown.
        """
        *_, last = self.stream(question, **options)
        assert isinstance(last, DoneEvent), "a stream ends with its done event"
        return last.answer

    def stream(self, question: str, **options: Unpack[AskOptions]) -> Iterator[Event]:
        """Answers a question piece by piece.

        Arguments are checked before the first event. Token texts joined are the answer's text.

        Args:
            question: In plain words.
            **options: See ``AskOptions``.

        Returns:
            An iterator over gate, passages, tokens, citations, done. Closing it early stops
            decoding.
        """
        return iterate_blocking(self._events(BlockingWaiter(), self.question(question, **options)))

    async def aask(self, question: str, **options: Unpack[AskOptions]) -> Answer:
        """Answers a question in a task of an event loop, as ``ask`` does in a thread.

        Args:
            question: In plain words.
            **options: See ``AskOptions``.
        """
        async with contextlib.aclosing(self.astream(question, **options)) as events:
            async for event in events:
                if isinstance(event, DoneEvent):
                    return event.answer
        raise AssertionError("a stream ends with its done event")

    def astream(self, question: str, **options: Unpack[AskOptions]) -> AsyncGenerator[Event, None]:
        """Answers a question piece by piece in a task of an event loop, as ``stream`` does.

        Arguments are checked at once. A task that is cancelled stops decoding.

        Args:
            question: In plain words.
            **options: See ``AskOptions``.
        """
        return self._events(TaskWaiter(), self.question(question, **options))

    def question(
        self,
        text: str,
        *,
        mode: str | None = None,
        k: int | None = None,
        params: SamplingParams | None = None,
        where: Filter | None = None,
        system: str | None = None,
        history: Sequence[Message] = (),
        timeout_s: float | None = None,
    ) -> Question:
        """Returns a question with all that decides on its answer; see ``AskOptions``.

        Args:
            text: In plain words.
            mode: ``auto``, ``always`` or ``never``.
            k: Passages to look up.
            params: How to generate.
            where: Which documents to look in.
            system: Instead of the pipeline's own system prompt.
            history: Earlier turns of the conversation.
            timeout_s: Most seconds that it may take.
        """
        return Question(
            text,
            self.mode if mode is None else mode,
            self.k if k is None else k,
            params or self.params,
            where,
            Chat(system, tuple(history)),
            timeout_s,
        )

    def _events(self, waiter: Waiter, question: Question) -> AsyncGenerator[Event, None]:
        answering = Answering(self, waiter, question)
        return answering.events(self.gate_for(question.mode, question.text))

    def close(self) -> None:
        """Ends what is under way; whoever still waits is told an ``EngineClosedError``."""
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

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

    def explain(
        self, question: str, **options: Unpack[AskOptions]
    ) -> tuple[GateDecision, tuple[ScoredPassage, ...]]:
        """Returns the decision on a question without answering it.

        Args:
            question: In plain words.
            **options: See ``AskOptions``.

        Returns:
            The decision, and the passages of its lookup if it made one.
        """
        asked = self.question(question, **options)
        return run_blocking(_explained(self._events(BlockingWaiter(), asked)))

    async def aexplain(
        self, question: str, **options: Unpack[AskOptions]
    ) -> tuple[GateDecision, tuple[ScoredPassage, ...]]:
        """Explains in a task of an event loop, as ``explain`` does in a thread.

        Args:
            question: In plain words.
            **options: See ``AskOptions``.
        """
        return await _explained(self.astream(question, **options))

    def signals_of(self, question: str) -> GateSignals:
        """Measures the closed-book beginning of a question, as the gate would see it.

        Args:
            question: In plain words.

        Raises:
            InputError: The question is blank or too long for the target.
        """
        answering = Answering(self, BlockingWaiter(), self.question(question))
        try:
            return run_blocking(answering.signals())
        finally:
            answering.cancel()

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


def _warm_up(retriever: Retriever) -> None:
    with contextlib.suppress(SpecragError):
        retriever.warm_up()


async def _explained(
    events: AsyncGenerator[Event, None],
) -> tuple[GateDecision, tuple[ScoredPassage, ...]]:
    """Reads the two first events, and ends what they begin."""
    async with contextlib.aclosing(events):
        first, second = await anext(events), await anext(events)
    assert isinstance(first, GateEvent), "a stream begins with its gate event"
    assert isinstance(second, PassagesEvent), "the passages come second"
    return first.decision, second.passages
