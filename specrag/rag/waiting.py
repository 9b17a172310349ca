"""One flow for threads and for tasks: what waits is given from outside.

The steps of an answer are written once, as coroutines. A thread drives them with a waiter that
blocks, so that nothing ever suspends; a task of an event loop, with one that awaits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Protocol, TypeVar

from specrag.decoding.row import RowUpdate
from specrag.decoding.submission import Submission

T = TypeVar("T")


class Waiter(Protocol):
    """How to wait for an engine, and for work that takes long."""

    async def update(self, submission: Submission) -> RowUpdate | None:
        """Returns the next update of a submission, None behind the last one.

        Args:
            submission: Of an engine.
        """

    async def call(self, work: Callable[[], T]) -> T:
        """Returns what a function returns.

        Args:
            work: May take long.
        """


class BlockingWaiter:
    """Waits in the thread that it is called in."""

    async def update(self, submission: Submission) -> RowUpdate | None:
        """Returns the next update, see ``Waiter``.

        Args:
            submission: Of an engine.
        """
        return submission.next()

    async def call(self, work: Callable[[], T]) -> T:
        """Calls the function here.

        Args:
            work: May take long.
        """
        return work()


class TaskWaiter:
    """Lets the event loop go on; work that takes long gets a thread."""

    async def update(self, submission: Submission) -> RowUpdate | None:
        """Returns the next update, see ``Waiter``.

        Args:
            submission: Of an engine.
        """
        return await submission.anext()

    async def call(self, work: Callable[[], T]) -> T:
        """Calls the function in a thread.

        Args:
            work: May take long.
        """
        return await asyncio.to_thread(work)


def run_blocking(work: Coroutine[None, None, T]) -> T:
    """Runs a coroutine that waits with a ``BlockingWaiter`` alone.

    Args:
        work: The coroutine.
    """
    try:
        work.send(None)
    except StopIteration as ended:
        found: T = ended.value
        return found
    finally:
        work.close()
    raise AssertionError("a coroutine with a blocking waiter does not suspend")


def iterate_blocking(items: AsyncGenerator[T, None]) -> Iterator[T]:
    """Yields what an asynchronous generator yields that waits with a ``BlockingWaiter`` alone.

    Args:
        items: The generator; is closed when the iterator is.
    """
    try:
        while True:
            try:
                yield run_blocking(items.__anext__())
            except StopAsyncIteration:
                return
    finally:
        run_blocking(items.aclose())
