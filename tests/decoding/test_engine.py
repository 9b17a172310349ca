"""Many threads and tasks ask one engine: each gets what it would get alone, without long waits."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from transformers.generation.logits_process import LogitsProcessor

from specrag.decoding import engine as engine_module
from specrag.decoding.drafter import DraftContext, Drafter, DraftSession
from specrag.decoding.engine import DecodingEngine
from specrag.decoding.engine_limits import EngineLimits
from specrag.decoding.generator import SpeculativeGenerator
from specrag.decoding.row import DecodingRequest
from specrag.decoding.submission import Submission
from specrag.drafters.suffix import SuffixDrafter
from specrag.errors import (
    ConfigError,
    DeadlineError,
    EngineClosedError,
    InputError,
    ModelError,
    QueueFullError,
)
from tests.decoding.scripts import CONFIG, MODES, TOKENIZER, alone, request, target

MakeEngine = Callable[..., DecodingEngine]


@pytest.fixture
def make_engine() -> Iterator[MakeEngine]:
    """Makes engines that are closed at the end of the test."""
    made: list[DecodingEngine] = []

    def make(
        drafter: Drafter | None = None,
        clock: Callable[[], float] = time.monotonic,
        **limits: int,
    ) -> DecodingEngine:
        generator = SpeculativeGenerator(target(), TOKENIZER, drafter or SuffixDrafter(), CONFIG)
        made.append(DecodingEngine(generator, EngineLimits(**limits), clock))
        return made[-1]

    yield make
    for one in made:
        one.close()


class Gate(LogitsProcessor):  # type: ignore[misc]
    """Changes nothing; lets one pass after the other through, when the test says so."""

    def __init__(self) -> None:
        self.arrived = threading.Semaphore(0)
        self.open = threading.Semaphore(0)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.arrived.release()
        assert self.open.acquire(timeout=30)
        return scores


class Broken(LogitsProcessor):  # type: ignore[misc]
    def __init__(self, after: int = 0) -> None:
        self._left = after

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if not self._left:
            raise ZeroDivisionError("the user's own")
        self._left -= 1
        return scores


class OneBatchDrafter(Drafter):
    """Its sessions do not grow."""

    name = "one-batch"

    class Session(DraftSession):
        def propose(self, rows: Sequence[int], budget: Sequence[Any]) -> list[Any]:
            from specrag.decoding.tree import DraftTree

            return [DraftTree() for _ in rows]

        def observe(self, row: int, token_ids: Sequence[int], features: Any = None) -> None:
            pass

    def open(self, contexts: Sequence[DraftContext]) -> DraftSession:
        return self.Session()


def read(one: Submission) -> tuple[list[int], str, str | None]:
    updates = list(one.updates())
    tokens = [token for update in updates for token in update.token_ids]
    return tokens, "".join(update.text for update in updates), updates[-1].finish_reason


def expected(asked: DecodingRequest) -> tuple[list[int], str, str | None]:
    answer = alone(asked)
    return list(answer.token_ids), answer.text, answer.finish_reason


@pytest.mark.parametrize("max_batch", [1, 3, 8])
def test_each_gets_what_it_gets_alone(make_engine: MakeEngine, max_batch: int) -> None:
    engine = make_engine(max_batch=max_batch)
    modes = list(MODES)
    asked = [request(number, modes[number % len(modes)]) for number in range(40)]
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda one: read(engine.submit(one)), asked))
    assert found == [expected(one) for one in asked]
    assert engine.num_running == engine.num_waiting == 0


def test_a_batch_is_shared_and_bounded(make_engine: MakeEngine) -> None:
    engine = make_engine(max_batch=2)
    gate = Gate()
    first = engine.submit(request(1, processors=[gate], max_tokens=6, min_tokens=6))
    assert gate.arrived.acquire(timeout=30)
    others = [engine.submit(request(number, max_tokens=40, min_tokens=40)) for number in (2, 3)]
    assert engine.num_waiting == 2
    gate.open.release()
    assert gate.arrived.acquire(timeout=30)  # the next pass: one of the others has joined
    assert (engine.num_running, engine.num_waiting) == (2, 1)
    assert first.started is not None
    assert others[1].started is None
    gate.open.release(100)
    assert [read(one)[2] for one in (first, *others)] == ["length"] * 3
    assert others[0].started < others[1].started  # type: ignore[operator]


def test_a_row_that_fails_leaves_the_others_alone(make_engine: MakeEngine) -> None:
    engine = make_engine()
    good = [request(number) for number in (1, 2, 3)]
    bad = [request(number, processors=[Broken(after)]) for number, after in ((4, 0), (5, 3))]
    submitted = [engine.submit(one) for one in (bad[0], good[0], bad[1], *good[1:])]
    for at in (0, 2):
        with pytest.raises(ZeroDivisionError, match="own"):
            read(submitted[at])
    with pytest.raises(InputError, match="empty"):
        engine.submit(DecodingRequest((), good[0].params))
    assert [read(submitted[at]) for at in (1, 3, 4)] == [expected(one) for one in good]
    assert engine.wait_idle(30)


def test_a_fault_of_the_engine_is_told_to_all_and_the_next_request_works(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    gate = Gate()
    submitted = [engine.submit(request(1, processors=[gate])), engine.submit(request(2))]
    assert gate.arrived.acquire(timeout=30)
    real = target().forward

    def failing(*_: Any, **__: Any) -> Any:
        raise ModelError("out of memory")

    monkeypatch.setattr(target(), "forward", failing)
    gate.open.release(100)
    for one in submitted:
        with pytest.raises(ModelError, match="out of memory"):
            read(one)
    monkeypatch.setattr(target(), "forward", real)
    assert read(engine.submit(request(3))) == expected(request(3))


@pytest.mark.parametrize("way", ["cancel", "close the reader"])
def test_a_cancelled_request_frees_its_place_within_a_pass(
    make_engine: MakeEngine, way: str
) -> None:
    engine = make_engine(max_batch=1)
    gate = Gate()
    first = engine.submit(request(1, processors=[gate], max_tokens=400, min_tokens=400))
    second = engine.submit(request(2))
    assert gate.arrived.acquire(timeout=30)
    gate.open.release()
    reader = first.updates()
    next(reader)
    assert gate.arrived.acquire(timeout=30)
    if way == "cancel":
        first.cancel()
    else:
        reader.close()  # type: ignore[attr-defined] # it is a generator
    gate.open.release(8)  # the pass under way, which may verify several tokens
    assert read(second) == expected(request(2))
    assert first.ended
    if way == "cancel":
        assert list(reader)[-1].finish_reason == "cancelled"


def test_a_waiting_request_can_be_cancelled(make_engine: MakeEngine) -> None:
    engine = make_engine(max_batch=1)
    gate = Gate()
    first = engine.submit(request(1, processors=[gate]))
    waiting = engine.submit(request(2))
    assert gate.arrived.acquire(timeout=30)
    waiting.cancel()
    gate.open.release(100)
    assert read(waiting) == ([], "", "cancelled")
    assert read(first) == expected(request(1))


def test_too_many_requests_are_refused_and_none_is_lost(make_engine: MakeEngine) -> None:
    engine = make_engine(max_batch=1, max_waiting=2)
    gate = Gate()
    submitted = [engine.submit(request(1, processors=[gate]))]
    assert gate.arrived.acquire(timeout=30)
    submitted += [engine.submit(request(number)) for number in (2, 3)]
    with pytest.raises(QueueFullError, match="2 requests are waiting") as caught:
        engine.submit(request(4))
    assert caught.value.hint == "try again in a moment"
    gate.open.release(100)
    assert [read(one) for one in submitted] == [expected(request(n)) for n in (1, 2, 3)]


@pytest.mark.parametrize("waits", [False, True])
def test_time_that_is_up(make_engine: MakeEngine, waits: bool) -> None:
    now = [0.0]
    engine = make_engine(clock=lambda: now[0], max_batch=1)
    gate = Gate()
    long = request(1, processors=[gate], max_tokens=400, min_tokens=400)
    blocking = engine.submit(long, timeout_s=None if waits else 2.5)
    assert gate.arrived.acquire(timeout=30)
    late = engine.submit(request(2), timeout_s=2.5) if waits else blocking
    now[0] = 2.5
    gate.open.release(8)
    with pytest.raises(DeadlineError, match="longer than 2.5 s"):
        read(late)
    blocking.cancel()
    gate.open.release(1000)
    assert read(engine.submit(request(3), timeout_s=2.5)) == expected(request(3))


def test_a_loop_that_is_gone_fails_nobody_else(make_engine: MakeEngine) -> None:
    """A task's loop may be closed while the engine still has something for it."""
    engine = make_engine()
    gate = Gate()
    one = engine.submit(request(1, processors=[gate], max_tokens=9, min_tokens=9))

    async def wait_in_vain() -> None:
        task = asyncio.create_task(one.anext())
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(wait_in_vain())
    other = engine.submit(request(2))
    gate.open.release(100)
    assert read(other) == expected(request(2))
    assert len(read(one)[0]) == 9


def test_tasks_read_beside_each_other(make_engine: MakeEngine) -> None:
    engine = make_engine(max_batch=3)
    asked = [request(number, "sampled") for number in range(12)]

    async def answer(one: DecodingRequest) -> list[int]:
        updates = [update async for update in engine.submit(one).aupdates()]
        assert updates[-1].finish_reason
        return [token for update in updates for token in update.token_ids]

    async def all_of_them() -> list[list[int]]:
        return list(await asyncio.gather(*(answer(one) for one in asked)))

    assert asyncio.run(all_of_them()) == [expected(one)[0] for one in asked]


def test_a_cancelled_task_cancels_its_request(make_engine: MakeEngine) -> None:
    engine = make_engine(max_batch=1)
    gate = Gate()

    async def run() -> Submission:
        one = engine.submit(request(1, processors=[gate], max_tokens=400, min_tokens=400))

        async def reading() -> None:
            async for _ in one.aupdates():
                pass

        task = asyncio.create_task(reading())
        while not gate.arrived.acquire(blocking=False):
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return one

    one = asyncio.run(run())
    gate.open.release(100)
    assert read(engine.submit(request(2))) == expected(request(2))
    assert one.cancelled
    assert one.ended


def test_an_error_reaches_a_task_behind_what_was_said(make_engine: MakeEngine) -> None:
    engine = make_engine()
    asked = request(3, processors=[Broken(2)], min_tokens=5, max_tokens=5)

    said: list[int] = []

    async def run() -> None:
        async for update in engine.submit(asked).aupdates():
            said.extend(update.token_ids)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(run())
    assert said


def test_the_thread_lives_while_there_is_work(make_engine: MakeEngine) -> None:
    engine = make_engine()
    for number in range(3):
        assert read(engine.submit(request(number))) == expected(request(number))
        assert engine.wait_idle(30)
        assert not [t for t in threading.enumerate() if t.name == "specrag-engine"]


def test_a_program_that_ends_amid_an_answer_ends_in_order() -> None:
    """A thread torn off a pass ends the process with a signal."""
    program = """
from specrag.decoding.engine import DecodingEngine
from specrag.decoding.generator import SpeculativeGenerator
from specrag.decoding.sampling import SamplingParams
from specrag.models.tiny import tiny_target, tiny_tokenizer
generator = SpeculativeGenerator(tiny_target(), tiny_tokenizer(), "suffix")
engine = DecodingEngine(generator)
asked = generator.request([5, 6, 7], SamplingParams(max_tokens=300, ignore_eos=True))
print(engine.submit(asked).next().token_ids != ())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_closing_drains_or_cancels(make_engine: MakeEngine) -> None:
    drained = make_engine(max_batch=2)
    submitted = [drained.submit(request(number)) for number in range(6)]
    drained.close(drain_s=60)
    assert [read(one) for one in submitted] == [expected(request(n)) for n in range(6)]
    with pytest.raises(EngineClosedError, match="closed"):
        drained.submit(request(1))
    drained.close()

    cut = make_engine(max_batch=1)
    gate = Gate()
    long = cut.submit(request(1, processors=[gate], max_tokens=400, min_tokens=400))
    waiting = cut.submit(request(2))
    assert gate.arrived.acquire(timeout=30)
    closing = threading.Thread(target=cut.close)
    closing.start()
    end = time.monotonic() + 30
    while not cut.is_closed:
        assert time.monotonic() < end
        time.sleep(0.001)
    gate.open.release(100)
    closing.join(30)
    assert not closing.is_alive()
    for one in (long, waiting):
        with pytest.raises(EngineClosedError, match="before the answer was done"):
            read(one)
    make_engine().close()  # one that was never asked


def test_a_drafter_of_fixed_batches_serves_one_after_the_other(make_engine: MakeEngine) -> None:
    engine = make_engine(OneBatchDrafter())
    submitted = [engine.submit(request(number)) for number in range(5)]
    assert [read(one) for one in submitted] == [expected(request(n)) for n in range(5)]


def test_sessions_are_renewed(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "_MAX_ROWS", 3)
    engine = make_engine(max_batch=2)
    with ThreadPoolExecutor(8) as pool:
        asked = [request(number) for number in range(20)]
        found = list(pool.map(lambda one: read(engine.submit(one)), asked))
    assert found == [expected(one) for one in asked]


@pytest.mark.parametrize("name", ["max_batch", "max_waiting"])
def test_limits_are_checked(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be at least 1, got 0"):
        EngineLimits(**{name: 0})
