"""Requests whose bodies are too large are refused before they are read."""

from __future__ import annotations

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specrag.server.problems import response_of


class BodyLimit:
    """Refuses a body that says how large it is, and stops reading one that does not.

    Args:
        app: What comes next.
        max_bytes: Largest body.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one connection; see ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told = next((v for k, v in scope["headers"] if k == b"content-length"), b"0")
        if told.isdigit() and int(told) > self._max_bytes:
            await response_of(413, self._message)(scope, receive, send)
            return
        num_bytes = 0

        async def counted() -> Message:
            nonlocal num_bytes
            message = await receive()
            num_bytes += len(message.get("body", b""))
            if num_bytes > self._max_bytes:
                raise HTTPException(413, self._message)
            return message

        await self._app(scope, counted, send)

    @property
    def _message(self) -> str:
        return f"the body is larger than {self._max_bytes} bytes"
