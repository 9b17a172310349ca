"""Events in their order, and an engine that is free again however a stream ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest
import torch

from specrag.decoding.budget import DraftBudget
from specrag.decoding.drafter import DraftContext, Drafter, DraftSession
from specrag.decoding.engine_limits import EngineLimits
from specrag.decoding.sampling import SamplingParams
from specrag.decoding.tree import DraftTree
from specrag.errors import EngineClosedError, InputError
from specrag.gate.policy import RetrievalGate
from specrag.rag.answer import Answer
from specrag.rag.events import (
    CitationsEvent,
    DoneEvent,
    Event,
    GateEvent,
    PassagesEvent,
    TokenEvent,
)
from specrag.rag.pipeline import Pipeline
from specrag.retrieval.document import ScoredPassage
from specrag.retrieval.filters import Filter
from specrag.retrieval.retriever import IndexRetriever, Retriever

MakePipeline = Callable[..., Pipeline]
GateOf = Callable[[str], RetrievalGate]
QUESTION = "When did the ship leave the harbour?"
ZONES = ["confident", "needed", "unsure-used", "unsure-dropped"]
every_zone = pytest.mark.parametrize("zone", ZONES)


class WatchedDrafter(Drafter):
    """Drafts nothing, counts its open sessions, and breaks when told to.

    ``log`` holds the number of the session that was asked, once for each round.
    """

    name = "watched"

    def __init__(self) -> None:
        self.num_opened = 0
        self.open_sessions: set[int] = set()
        self.log: list[int] = []
        self.rounds_until_failure = 10**9

    def open(self, contexts: Sequence[DraftContext]) -> DraftSession:
        self.num_opened += 1
        self.open_sessions.add(self.num_opened)
        return _WatchedSession(self, self.num_opened, len(contexts))


class _WatchedSession(DraftSession):
    def __init__(self, drafter: WatchedDrafter, number: int, num_rows: int) -> None:
        self._drafter = drafter
        self._number = number
        self._num_rows = num_rows

    def join(self, context: DraftContext) -> int:
        self._num_rows += 1
        return self._num_rows - 1

    def propose(self, rows: Sequence[int], budget: Sequence[DraftBudget]) -> list[DraftTree]:
        self._drafter.log.append(self._number)
        self._drafter.rounds_until_failure -= 1
        if self._drafter.rounds_until_failure <= 0:
            raise RuntimeError("the drafter broke")
        return [DraftTree() for _ in rows]

    def observe(
        self,
        row: int,
        token_ids: Sequence[int],
        features: Mapping[int, torch.Tensor] | None = None,
    ) -> None:
        pass

    def close(self) -> None:
        self._drafter.open_sessions.discard(self._number)


class BreakingRetriever(Retriever):
    """Another retriever that breaks when told to."""

    def __init__(self, inner: Retriever) -> None:
        self.inner = inner
        self.is_broken = False

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def index_version(self) -> str:
        return self.inner.index_version

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    @property
    def num_lookups(self) -> int:
        return self.inner.num_lookups

    def retrieve(self, query: str, k: int, where: Filter | None = None) -> list[ScoredPassage]:
        if self.is_broken:
            raise OSError("the disk broke")
        return self.inner.retrieve(query, k, where)


def close(events: Iterator[Event]) -> None:
    cast("Generator[Event, None, None]", events).close()


@every_zone
@pytest.mark.parametrize("drafter", ["suffix", "none"])
def test_events_come_in_order_and_add_up(
    make_pipeline: MakePipeline, gate_of: GateOf, zone: str, drafter: str
) -> None:
    pipeline = make_pipeline(gate=gate_of(zone), drafter=drafter)
    gate, passages, *tokens, citations, done = pipeline.stream(QUESTION)
    answer = pipeline.ask(QUESTION)

    assert isinstance(gate, GateEvent)
    assert isinstance(passages, PassagesEvent)
    assert all(isinstance(token, TokenEvent) for token in tokens)
    assert isinstance(citations, CitationsEvent)
    assert isinstance(done, DoneEvent)
    assert len(tokens) > 1
    texts = [token.text for token in tokens if isinstance(token, TokenEvent)]
    assert all(texts)
    assert "".join(texts) == answer.text
    assert gate.decision == answer.gate
    assert citations.citations == answer.citations
    assert bool(passages.passages) is answer.gate.retrieve is bool(answer.citations)


@every_zone
def test_the_done_event_is_the_answer_of_ask(
    make_pipeline: MakePipeline, gate_of: GateOf, zone: str
) -> None:
    pipeline = make_pipeline(gate=gate_of(zone))
    *_, done = pipeline.stream(QUESTION)
    streamed, asked = done.to_dict(), pipeline.ask(QUESTION).to_dict()

    assert streamed.pop("request_id") != asked.pop("request_id")
    assert streamed.pop("timings").keys() == asked.pop("timings").keys()
    assert streamed == asked


def test_events_have_a_name_and_a_json_shape(
    make_pipeline: MakePipeline, retriever: IndexRetriever
) -> None:
    events = list(make_pipeline().stream(QUESTION, mode="always"))
    names = [event.type for event in events]
    assert names == ["gate", "passages", *["token"] * (len(events) - 4), "citations", "done"]
    gate, passages, token, *_, citations, done = (event.to_dict() for event in events)
    assert gate == done["gate"]
    assert list(token) == ["text"]
    assert citations == {"citations": done["citations"]}
    found = retriever.retrieve(QUESTION, 2)
    assert passages == {
        "passages": [
            {
                "document": entry.passage.document,
                "passage": entry.passage.id,
                "page": None,
                "line": entry.passage.line,
                "start": entry.passage.start,
                "end": entry.passage.end,
                "heading": entry.passage.heading,
                "score": round(entry.score, 4),
                "text": entry.passage.text,
            }
            for entry in found
        ]
    }


def test_text_that_may_be_a_stop_string_is_not_streamed(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline()
    whole = pipeline.ask(QUESTION, mode="never").text
    params = SamplingParams(max_tokens=24, stop=(whole[5:9],))
    events = pipeline.stream(QUESTION, mode="never", params=params)
    shown = "".join(event.text for event in events if isinstance(event, TokenEvent))
    assert shown == whole[: whole.index(whole[5:9])]


@every_zone
@pytest.mark.parametrize("num_taken", [0, 1, 3, 6])
def test_a_stream_closed_early_frees_the_engine(
    make_pipeline: MakePipeline, gate_of: GateOf, zone: str, num_taken: int
) -> None:
    drafter = WatchedDrafter()
    pipeline = make_pipeline(drafter=drafter, gate=gate_of(zone))
    expected = pipeline.ask(QUESTION).text
    events = pipeline.stream(QUESTION)
    for _ in range(num_taken):
        next(events)
    close(events)
    assert pipeline.engine.wait_idle(60)
    rounds = len(drafter.log)

    assert drafter.open_sessions == set()
    with pytest.raises(StopIteration):
        next(events)
    assert len(drafter.log) == rounds  # decoding has stopped
    assert pipeline.ask(QUESTION).text == expected


@every_zone
@pytest.mark.parametrize("rounds", [1, 3, 9])
def test_a_drafter_that_breaks_leaves_the_pipeline_usable(
    make_pipeline: MakePipeline, gate_of: GateOf, zone: str, rounds: int
) -> None:
    drafter = WatchedDrafter()
    pipeline = make_pipeline(
        drafter=drafter, gate=gate_of(zone), params=SamplingParams(max_tokens=24, ignore_eos=True)
    )
    expected = pipeline.ask(QUESTION).text
    drafter.rounds_until_failure = rounds
    with pytest.raises(RuntimeError, match="the drafter broke"):
        list(pipeline.stream(QUESTION))

    assert pipeline.engine.wait_idle(60)
    assert drafter.open_sessions == set()
    drafter.rounds_until_failure = 10**9
    assert pipeline.ask(QUESTION).text == expected


@pytest.mark.parametrize("zone", ["needed", "unsure-used", "unsure-dropped"])
def test_a_retriever_that_breaks_leaves_the_pipeline_usable(
    make_pipeline: MakePipeline, gate_of: GateOf, retriever: IndexRetriever, zone: str
) -> None:
    drafter, breaking = WatchedDrafter(), BreakingRetriever(retriever)
    pipeline = make_pipeline(drafter=drafter, gate=gate_of(zone), retriever=breaking)
    expected = pipeline.ask(QUESTION).text
    breaking.is_broken = True
    with pytest.raises(OSError, match="the disk broke"):
        next(pipeline.stream(QUESTION))

    assert pipeline.engine.wait_idle(60)
    assert drafter.open_sessions == set()
    breaking.is_broken = False
    assert pipeline.ask(QUESTION).text == expected


@every_zone
def test_explaining_and_measuring_leave_nothing_open(
    make_pipeline: MakePipeline, gate_of: GateOf, zone: str
) -> None:
    drafter = WatchedDrafter()
    pipeline = make_pipeline(drafter=drafter, gate=gate_of(zone))
    decision, found = pipeline.explain(QUESTION)
    signals = pipeline.signals_of(QUESTION)

    assert pipeline.engine.wait_idle(60)
    assert drafter.num_opened
    assert drafter.open_sessions == set()
    answer = pipeline.ask(QUESTION)
    assert decision == answer.gate
    assert bool(found) is answer.gate.retrieve
    measured = {name: round(value, 4) for name, value in signals.to_dict().items()}
    assert measured == {name: answer.gate.signals[name] for name in measured}


def test_measuring_a_question_that_is_too_long_leaves_the_engine_free(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline()
    with pytest.raises(InputError, match="the prompt has"):
        pipeline.signals_of("why " * 600)
    assert pipeline.signals_of(QUESTION).num_tokens >= 8


def test_callers_at_the_same_time_are_answered_together(make_pipeline: MakePipeline) -> None:
    drafter = WatchedDrafter()
    pipeline = make_pipeline(drafter=drafter, limits=EngineLimits(max_batch=4))
    questions = [f"{QUESTION} {number}" for number in range(12)]
    modes = ["never", "always", "auto"] * 4
    expected = [
        pipeline.ask(question, mode=mode).text
        for question, mode in zip(questions, modes, strict=True)
    ]
    assert pipeline.engine.wait_idle(60)
    alone = drafter.num_opened
    with ThreadPoolExecutor(12) as pool:
        answers = pool.map(lambda q, m: pipeline.ask(q, mode=m).text, questions, modes)
        assert list(answers) == expected
    assert pipeline.engine.wait_idle(60)
    assert drafter.num_opened < 2 * alone  # they shared sessions
    assert drafter.open_sessions == set()


def test_tasks_at_the_same_time_get_what_threads_get(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline()
    questions = [f"{QUESTION} {number}" for number in range(6)]

    async def events_of(question: str) -> list[Event]:
        return [event async for event in pipeline.astream(question)]

    async def ask() -> tuple[list[list[Event]], list[Answer]]:
        streams = asyncio.gather(*map(events_of, questions))
        answers = asyncio.gather(*map(pipeline.aask, questions))
        return list(await streams), list(await answers)

    streams, answers = asyncio.run(ask())
    for question, found, answer in zip(questions, streams, answers, strict=True):
        expected = pipeline.ask(question)
        assert [event.type for event in found[:2]] == ["gate", "passages"]
        assert [event.type for event in found[-2:]] == ["citations", "done"]
        text = "".join(event.text for event in found if isinstance(event, TokenEvent))
        assert text == answer.text == expected.text
        assert answer.gate == expected.gate
        assert answer.citations == expected.citations


@every_zone
def test_a_cancelled_task_frees_the_engine(
    make_pipeline: MakePipeline, gate_of: GateOf, zone: str
) -> None:
    drafter = WatchedDrafter()
    long = SamplingParams(max_tokens=300, ignore_eos=True)
    pipeline = make_pipeline(drafter=drafter, gate=gate_of(zone), params=long)

    async def ask() -> None:
        task = asyncio.create_task(pipeline.aask(QUESTION))
        while not drafter.log:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(ask())
    assert pipeline.engine.wait_idle(60)
    assert drafter.open_sessions == set()
    assert len(drafter.log) < 300


def test_a_closed_pipeline_answers_no_more(make_pipeline: MakePipeline) -> None:
    with make_pipeline() as pipeline:
        assert pipeline.ask(QUESTION).text
    with pytest.raises(EngineClosedError, match="closed"):
        pipeline.ask(QUESTION)


def test_the_checks_of_a_stream_do_not_wait_for_the_engine(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline()
    events = pipeline.stream(QUESTION, mode="never")
    next(events)
    with pytest.raises(InputError, match="blank"):
        pipeline.ask(" ")
    close(events)


def test_a_stream_read_to_its_done_event_holds_up_nobody(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline()
    stream = pipeline.stream(QUESTION, mode="never")
    last = next(event for event in stream if isinstance(event, DoneEvent))
    # `stream` is kept and never exhausted; asking in the same thread must not wait for it.
    assert pipeline.ask(QUESTION, mode="never").text == last.answer.text
    assert next(stream, None) is None
