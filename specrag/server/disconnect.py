"""Ending work whose client has gone; a plain handler is not told of that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from fastapi import Request

T = TypeVar("T")


class ClientGoneError(Exception):
    """The client has closed its connection; nobody reads what would be answered."""


async def unless_disconnected(request: Request, work: Awaitable[T]) -> T:
    """Returns the result of some work, which is cancelled when the client goes away.

    Args:
        request: Its body has been read.
        work: Can be cancelled.

    Raises:
        ClientGoneError: The client has gone.
    """
    working: asyncio.Future[Any] = asyncio.ensure_future(work)
    going: asyncio.Future[Any] = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({working, going}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGoneError
        found: T = working.result()
        return found
    finally:
        # Also when this task is cancelled itself.
        unfinished = [task for task in (working, going) if not task.done()]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
