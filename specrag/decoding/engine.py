"""DecodingEngine: one thread decodes all requests together; they join and leave between passes.

Continuous batching, as Orca (Yu et al., 2022) introduced it and vLLM made it usual: a request does
not wait for the batch before it to end, and frees its place as soon as it ends.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable

from specrag.decoding.engine_limits import EngineLimits
from specrag.decoding.generator import SpeculativeGenerator
from specrag.decoding.row import DecodingRequest, RowUpdate, new_row
from specrag.decoding.session import DecodingSession
from specrag.decoding.submission import Submission
from specrag.errors import (
    DeadlineError,
    EngineClosedError,
    FixedBatchError,
    QueueFullError,
)

_MAX_ROWS = 512
"""Rows of a session before it is renewed: what has ended still takes a little memory."""


class DecodingEngine:
    """Owns a generator: nothing else may decode with it while the engine is open.

    Its thread lives while there is something to do: an engine that is dropped leaves nothing
    behind. A program that ends waits for the answers that it has neither read nor cancelled;
    ``close`` cancels them.

    Args:
        generator: Target, tokenizer and drafter.
        limits: How much it takes on.
        clock: Seconds, from any beginning.

    Attributes:
        generator: As given.
        limits: As given; others count from the next request on.
    """

    def __init__(
        self,
        generator: SpeculativeGenerator,
        limits: EngineLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.generator = generator
        self.limits = limits or EngineLimits()
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[Submission] = deque()
        self._running: dict[int, Submission] = {}
        self._session: DecodingSession | None = None
        self._thread: threading.Thread | None = None
        self._closing = False
        self._aborting = False  # closing, and no longer waiting for what is under way

    @property
    def num_waiting(self) -> int:
        """Requests without a place in the batch."""
        return len(self._waiting)

    @property
    def is_closed(self) -> bool:
        """Whether it takes no further requests."""
        return self._closing

    @property
    def running(self) -> tuple[Submission, ...]:
        """The requests in the batch."""
        return tuple(self._running.values())

    @property
    def num_running(self) -> int:
        """Requests in the batch."""
        return len(self._running)

    def submit(self, request: DecodingRequest, *, timeout_s: float | None = None) -> Submission:
        """Hands a request in; any thread may.

        Args:
            request: What to decode.
            timeout_s: Seconds until it has to be done, waiting included; None for no end.

        Returns:
            Where what it brings can be read.

        Raises:
            InputError: The prompt is empty or leaves no room in the context.
            ConfigError: A parameter does not go with the target.
            QueueFullError: Too many requests wait already.
            EngineClosedError: The engine is closed.
        """
        new_row(request, self.generator.target, self.generator.tokenizer)  # says what is wrong
        submission = Submission(request, self._clock(), timeout_s)
        with self._changed:
            if self._closing:
                raise EngineClosedError("the engine is closed and takes no further requests")
            if len(self._waiting) >= self.limits.max_waiting:
                raise QueueFullError(
                    f"{len(self._waiting)} requests are waiting already",
                    hint="try again in a moment",
                )
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="specrag-engine")
                thread.start()  # it waits for the lock
                self._thread = thread
            self._waiting.append(submission)
        return submission

    def wait_idle(self, timeout_s: float | None = None) -> bool:
        """Waits until nothing is waiting or running.

        Args:
            timeout_s: Most seconds to wait; None waits as long as it takes.

        Returns:
            Whether the engine is idle.
        """
        with self._changed:
            return self._changed.wait_for(self._is_idle, timeout_s)

    def close(self, *, drain_s: float = 0.0) -> None:
        """Ends the engine; harmless to repeat.

        Args:
            drain_s: Most seconds for what is waiting or running to be done; whoever still waits
                then is told an ``EngineClosedError``.
        """
        with self._changed:
            self._closing = True
            if drain_s > 0:
                self._changed.wait_for(self._is_idle, drain_s)
            self._aborting = True
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def __enter__(self) -> DecodingEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        """The thread: lets requests in and out, then decodes one round, over and over."""
        while True:
            with self._changed:
                if not self._waiting and not self._running:
                    self._end_session()
                    self._thread = None
                    self._changed.notify_all()
                    return
            try:
                self._drop_late()
                self._admit()
                if self._session is not None and not self._session.finished:
                    self._deliver(self._session.step())
            except BaseException as error:  # noqa: BLE001 - whoever waits has to hear of it
                self._on_error(error)
            self._retire()

    def _is_idle(self) -> bool:
        return self._thread is None

    def _drop_late(self) -> None:
        """Takes requests out that were called off or whose time is up."""
        now = self._clock()
        with self._changed:
            late = [one for one in self._waiting if self._is_over(one, now)]
            for one in late:
                self._waiting.remove(one)
        for one in late:
            self._end(one, RowUpdate(finish_reason="cancelled"))
        for index, one in list(self._running.items()):
            if self._is_over(one, now):
                assert self._session is not None, "what is running has a session"
                rest = self._session.cancel(index)
                del self._running[index]
                self._end(one, rest)

    def _is_over(self, one: Submission, now: float) -> bool:
        return self._aborting or one.cancelled or one.is_late(now)

    def _end(self, one: Submission, rest: RowUpdate) -> None:
        """Tells a reader why its request ends early; whoever called it off gets the rest."""
        if one.cancelled:
            one.add(rest)
        elif self._aborting:
            one.fail(EngineClosedError("the engine was closed before the answer was done"))
        else:
            one.fail(
                DeadlineError(
                    f"the answer took longer than {one.timeout_s:g} s",
                    hint="give it more time, or ask for less",
                )
            )

    def _admit(self) -> None:
        """Lets requests in, the oldest first, as far as there are places."""
        while len(self._running) < self.limits.max_batch and self._takes_more():
            with self._changed:
                if not self._waiting:
                    return
                one = self._waiting.popleft()
            try:
                index = self._joined(one.request)
            except BaseException as error:  # noqa: BLE001 - it is this request's own
                one.fail(error)
                continue
            if index is None:
                with self._changed:
                    self._waiting.appendleft(one)
                return
            assert self._session is not None, "a row has just joined it"
            one.row, one.started = self._session.rows[index], self._clock()
            self._running[index] = one

    def _takes_more(self) -> bool:
        return self._session is None or len(self._session.rows) < _MAX_ROWS

    def _joined(self, request: DecodingRequest) -> int | None:
        if self._session is None:
            self._session = self.generator.open([request])
            return 0
        try:
            return self._session.add(request)
        except FixedBatchError:
            return None  # such a drafter serves one batch after the other

    def _deliver(self, updates: dict[int, RowUpdate]) -> None:
        for index, update in updates.items():
            one = self._running.get(index)
            if one is None:
                continue
            if update.finish_reason is not None:
                del self._running[index]
            one.add(update)

    def _on_error(self, error: BaseException) -> None:
        """Gives an error to the row that caused it; to all of them when none is known."""
        session = self._session
        if session is not None and session.faulty_row in self._running:
            self._running.pop(session.faulty_row).fail(error)
            try:
                session.cancel(session.faulty_row)
            except Exception as later:  # noqa: BLE001 - then nothing of the session is sound
                error = later
            else:
                return
        for one in self._running.values():
            one.fail(error)
        self._running.clear()
        self._end_session()

    def _retire(self) -> None:
        """Ends a session when all of it has ended."""
        if self._session is not None and self._session.finished and not self._running:
            self._end_session()

    def _end_session(self) -> None:
        if self._session is not None:
            with contextlib.suppress(Exception):  # a session that failed is only let go
                self._session.close()
            self._session = None
