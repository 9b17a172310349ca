"""Many questions at once, closed book or open book: the two answers that a gate chooses between."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from specrag.decoding.sampling import SamplingParams
from specrag.decoding.session import DecodingSession
from specrag.errors import ConfigError
from specrag.gate.policy import GateDecision
from specrag.gate.signals import GateSignals
from specrag.rag.answer import Answer, Timings, Usage
from specrag.rag.pipeline import Pipeline
from specrag.rag.prompt import PackedPrompt
from specrag.retrieval.document import ScoredPassage


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """One answer of a batch.

    Attributes:
        answer: As ``Pipeline.ask`` returns it in the same mode. Its times are the question's
            share of the batch: the time of the batch divided by the number of its questions.
        passages: The passages in its prompt, best first; empty closed book.
        signals: What the gate sees of a closed-book answer; None open book.
        found: Everything that the lookup found, best first, fitting into the prompt or not.
        draft_ms: Share of the time until the gate's signals could be read, prefill included.
        draft_tokens: Tokens that were emitted until then.
    """

    answer: Answer
    passages: tuple[ScoredPassage, ...] = ()
    signals: GateSignals | None = None
    found: tuple[ScoredPassage, ...] = ()
    draft_ms: float = 0.0
    draft_tokens: int = 0


def answer_closed_book(
    pipeline: Pipeline, questions: Sequence[str], params: SamplingParams | None = None
) -> list[BatchAnswer]:
    """Answers questions without documents, in one batch.

    The text of each is that of mode ``never``. Rows of a batch share passes of another shape than
    a question alone has, so it may differ in arithmetic that depends on shapes; strict decoding
    rules that out.

    Args:
        pipeline: Parts and settings.
        questions: At least one, none blank.
        params: How to generate; the pipeline's own by default.
    """
    started = time.perf_counter()
    chosen = params or pipeline.params
    requests = [
        pipeline.closed_book_request(pipeline.question(question, params=chosen))
        for question in questions
    ]
    session = pipeline.generator.open(requests)
    try:
        while not _drafted(session, pipeline.draft_tokens):
            session.step()
        drafted_ms = 1e3 * (time.perf_counter() - started)
        draft_tokens = [len(row.token_ids) for row in session.rows]
        signals = [
            pipeline.signals_in(row, question)
            for row, question in zip(session.rows, questions, strict=True)
        ]
        _finish(session)
    finally:
        session.close()
    share = 1 / len(questions)
    spent = _timings(session, 1e3 * (time.perf_counter() - started), 0.0, share)
    answers = []
    for place, question in enumerate(questions):
        prompt = pipeline.prompts.closed_book(question)
        decision = pipeline.gate_for("never", question).decide(None)
        answers.append(
            BatchAnswer(
                _answer(pipeline, session, place, question, prompt, decision, spent),
                signals=signals[place],
                draft_ms=drafted_ms * share,
                draft_tokens=draft_tokens[place],
            )
        )
    return answers


def answer_open_book(
    pipeline: Pipeline,
    questions: Sequence[str],
    params: SamplingParams | None = None,
    k: int | None = None,
) -> list[BatchAnswer]:
    """Looks each question up and answers all from their passages, in one batch.

    Args:
        pipeline: Parts and settings, with an index.
        questions: At least one, none blank.
        params: How to generate; the pipeline's own by default.
        k: Passages to look up; the pipeline's own by default.

    Raises:
        ConfigError: The pipeline has no index.
    """
    if pipeline.retriever is None:
        raise ConfigError(
            f"the pipeline {pipeline.name!r} has no index to look anything up in",
            hint="name an index, or answer closed book",
        )
    started = time.perf_counter()
    found = [pipeline.retriever.retrieve(question, k or pipeline.k) for question in questions]
    lookup_ms = 1e3 * (time.perf_counter() - started)
    prompts = [
        pipeline.prompts.with_passages(question, passages)
        for question, passages in zip(questions, found, strict=True)
    ]
    chosen = params or pipeline.params
    requests = [pipeline.generator.request(prompt.messages, chosen) for prompt in prompts]
    session = pipeline.generator.open(requests)
    try:
        _finish(session)
    finally:
        session.close()
    share = 1 / len(questions)
    spent = _timings(session, 1e3 * (time.perf_counter() - started), lookup_ms, share)
    answers = []
    for place, (question, prompt) in enumerate(zip(questions, prompts, strict=True)):
        decision = pipeline.gate_for("always", question).decide(None)
        answers.append(
            BatchAnswer(
                _answer(pipeline, session, place, question, prompt, decision, spent),
                passages=prompt.passages,
                found=tuple(found[place]),
            )
        )
    return answers


def _drafted(session: DecodingSession, num_tokens: int) -> bool:
    return all(row.finish_reason or len(row.token_ids) >= num_tokens for row in session.rows)


def _finish(session: DecodingSession) -> None:
    while not session.finished:
        session.step()


def _answer(
    pipeline: Pipeline,
    session: DecodingSession,
    place: int,
    question: str,
    prompt: PackedPrompt,
    decision: GateDecision,
    spent: Timings,
) -> Answer:
    row = session.rows[place]
    usage = Usage(
        prompt_tokens=len(row.request.prompt_ids),
        completion_tokens=len(row.token_ids),
        context_tokens=prompt.context_tokens,
        lookups=int(decision.retrieve),
    )
    request_id = uuid.uuid4().hex
    return pipeline.answer_of(row, question, prompt, decision, usage, spent, request_id=request_id)


def _timings(session: DecodingSession, total_ms: float, lookup_ms: float, share: float) -> Timings:
    return Timings.of(
        session.timings,
        num_later_tokens=sum(len(row.token_ids) - 1 for row in session.rows),
        lookup_ms=lookup_ms,
        total_ms=total_ms,
        share=share,
    )
