"""`POST /ask`, `POST /retrieve` and `POST /gate`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from specrag.errors import ConfigError
from specrag.rag.events import DoneEvent, Event, PassagesEvent
from specrag.rag.pipeline import Pipeline
from specrag.rag.question import AskOptions
from specrag.server.disconnect import unless_disconnected
from specrag.server.metrics import ServerMetrics
from specrag.server.problems import problem_of, responses
from specrag.server.schemas import (
    AskRequest,
    AskResponse,
    GateRequest,
    GateResponse,
    RetrieveRequest,
    RetrieveResponse,
)
from specrag.server.settings import ServerSettings
from specrag.server.sse import EventStream, to_sse
from specrag.server.state import Metrics, Rag, Settings

router = APIRouter()

_ERRORS = responses(400, 401, 413, 422, 429, 500, 503, 504)
_STREAM = {
    "content": {"text/event-stream": {}},
    "description": "The answer; with `stream` the events gate, passages, token (any number), "
    "citations and done, or error.",
}


@router.post("/ask", response_model=AskResponse, responses={200: _STREAM, **_ERRORS})
async def ask(
    request: AskRequest, rag: Rag, settings: Settings, counted: Metrics, connection: Request
) -> Response:
    """Answers a question from the documents, with citations.

    Questions that arrive together are answered together. A client that goes away ends its answer.
    """
    options = _within(settings, request.options(rag))
    events = _counted(rag.astream(request.question, **options), counted)
    if request.stream:
        # What is wrong with a request shows before the first event, while there is a status.
        first = await unless_disconnected(connection, anext(events))
        return EventStream(_sse(first, events))
    found = await unless_disconnected(connection, _collected(events))
    content = found[-1].to_dict()
    if request.return_passages:
        content["passages"] = found[0].to_dict()["passages"]
    return JSONResponse(content, headers={"X-Request-Id": content["request_id"]})


@router.post("/retrieve", responses=_ERRORS)
async def retrieve(request: RetrieveRequest, rag: Rag) -> RetrieveResponse:
    """Looks a question up in the documents, without answering it."""
    if rag.retriever is None:
        raise ConfigError("this server has no index", hint="start it with one")
    question = rag.question(request.question, **request.options(rag))
    found = await asyncio.to_thread(rag.lookup, question)
    return RetrieveResponse.model_validate({**_index(rag), **PassagesEvent(tuple(found)).to_dict()})


@router.post("/gate", responses=_ERRORS)
async def gate(
    request: GateRequest, rag: Rag, settings: Settings, connection: Request
) -> GateResponse:
    """Tells whether a question would be looked up, and why, without answering it."""
    explaining = rag.aexplain(request.question, **_within(settings, request.options(rag)))
    decision, found = await unless_disconnected(connection, explaining)
    content = {"gate": decision.to_dict(), **_index(rag), **PassagesEvent(found).to_dict()}
    return GateResponse.model_validate(content)


def _within(settings: ServerSettings, options: AskOptions) -> AskOptions:
    """Bounds the time of a request by that of the server."""
    limits = [one for one in (settings.timeout_s, options.get("timeout_s")) if one is not None]
    return {**options, "timeout_s": min(limits, default=None)}


async def _counted(
    events: AsyncGenerator[Event, None], metrics: ServerMetrics
) -> AsyncGenerator[Event, None]:
    async with contextlib.aclosing(events):
        async for event in events:
            if isinstance(event, DoneEvent):
                metrics.count(event.answer)
            yield event


def _index(rag: Pipeline) -> dict[str, Any]:
    index = rag.retriever
    return {
        "index": index.name if index else "",
        "index_version": index.index_version if index else "",
    }


async def _collected(events: AsyncGenerator[Event, None]) -> tuple[PassagesEvent, DoneEvent]:
    async with contextlib.aclosing(events):
        kept = [event async for event in events if isinstance(event, PassagesEvent | DoneEvent)]
    passages, done = kept
    assert isinstance(passages, PassagesEvent), "the passages come first"
    assert isinstance(done, DoneEvent), "a stream ends with its done event"
    return passages, done


async def _sse(first: Event, events: AsyncGenerator[Event, None]) -> AsyncGenerator[bytes, None]:
    async with contextlib.aclosing(events):
        yield to_sse(first.type, first.to_dict())
        try:
            async for event in events:
                yield to_sse(event.type, event.to_dict())
        except Exception as error:  # noqa: BLE001 - the status has been sent
            yield to_sse("error", problem_of(error))
