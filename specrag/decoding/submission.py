"""Submission: a request that an engine decodes, seen from the thread or task that waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator

from specrag.decoding.row import DecodingRequest, Row, RowUpdate


class Submission:
    """One request on its way through an engine.

    What the engine adds can be read by one reader, by a thread (``updates``) or by a task of an
    event loop (``aupdates``). A reader that stops early cancels the request.

    Args:
        request: What was asked.
        submitted: When, in seconds of the engine's clock.
        timeout_s: Seconds that it may take, waiting included; None for no end.

    Attributes:
        row: The row that decodes it; None while it waits.
        started: When its row joined the batch, in seconds of the engine's clock; None while it
            waits.
        cancelled: Whether it was called off.
    """

    def __init__(
        self, request: DecodingRequest, submitted: float, timeout_s: float | None = None
    ) -> None:
        self.request = request
        self.submitted = submitted
        self.timeout_s = timeout_s
        self.row: Row | None = None
        self.started: float | None = None
        self.cancelled = False
        self._changed = threading.Condition()
        self._updates: deque[RowUpdate] = deque()
        self._error: BaseException | None = None
        self._ended = False
        self._on_change: Callable[[], None] = _nothing

    @property
    def ended(self) -> bool:
        """Whether nothing will be added any more."""
        return self._ended

    def is_late(self, now: float) -> bool:
        """Tells whether its time is up.

        Args:
            now: Seconds of the engine's clock.
        """
        return self.timeout_s is not None and now - self.submitted >= self.timeout_s

    def cancel(self) -> None:
        """Calls the request off: the engine ends its row before the next pass.

        Harmless when it has ended.
        """
        self.cancelled = self.cancelled or not self._ended

    def next(self) -> RowUpdate | None:
        """Returns what is added next, waiting for it; None behind the last update.

        Raises:
            SpecragError: The request failed, or its time was up.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._updates or self._ended)
            return self._taken()

    async def anext(self) -> RowUpdate | None:
        """Returns what is added next, as ``next`` does, to a task of an event loop.

        Raises:
            SpecragError: The request failed, or its time was up.
        """
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        with self._changed:
            if not self._updates and not self._ended:
                self._on_change = lambda: _wake(loop, changed)
            else:
                changed.set()
        await changed.wait()
        with self._changed:
            return self._taken()

    def updates(self) -> Iterator[RowUpdate]:
        """Yields what is added, waiting for it; the last update has a finish reason.

        Raises:
            SpecragError: The request failed, or its time was up.
        """
        try:
            while (update := self.next()) is not None:
                yield update
        finally:
            self.cancel()

    async def aupdates(self) -> AsyncIterator[RowUpdate]:
        """Yields what is added, as ``updates`` does, to a task of an event loop.

        Raises:
            SpecragError: The request failed, or its time was up.
        """
        try:
            while (update := await self.anext()) is not None:
                yield update
        finally:
            self.cancel()

    def add(self, update: RowUpdate) -> None:
        """Hands an update to the reader; the engine's side.

        Args:
            update: With a finish reason when it is the last one.
        """
        with self._changed:
            self._updates.append(update)
            self._ended = update.finish_reason is not None
            self._tell()

    def fail(self, error: BaseException) -> None:
        """Ends the request with an error, behind the updates that are there; the engine's side.

        Args:
            error: Is raised to the reader.
        """
        with self._changed:
            self._error, self._ended = error, True
            self._tell()

    def _tell(self) -> None:
        self._changed.notify_all()
        self._on_change()
        self._on_change = _nothing

    def _taken(self) -> RowUpdate | None:
        if self._updates:
            return self._updates.popleft()
        if self._error is not None:
            raise self._error
        return None


def _nothing() -> None:
    """Nobody waits."""


def _wake(loop: asyncio.AbstractEventLoop, changed: asyncio.Event) -> None:
    """Wakes a task from another thread; nobody waits in a loop that is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(changed.set)
