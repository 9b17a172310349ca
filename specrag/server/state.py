"""What the server holds while it runs: one pipeline, loaded before the first request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated

from anyio import to_thread
from fastapi import Depends, FastAPI, Request

from specrag.rag.build import SpecRAG
from specrag.rag.pipeline import Pipeline
from specrag.server.metrics import ServerMetrics
from specrag.server.settings import ServerSettings

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def lifespan_of(settings: ServerSettings, rag: Pipeline | None) -> Lifespan:
    """Returns the application's lifespan, which ends its start-up when the pipeline is there.

    Args:
        settings: What to load.
        rag: A pipeline that is loaded already; then nothing is loaded.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.rag = rag or await to_thread.run_sync(_load, settings)
        app.state.metrics = ServerMetrics(app.state.rag)
        yield
        if rag is None:  # one that was given belongs to whoever gave it
            await to_thread.run_sync(app.state.rag.close)

    return lifespan


def _load(settings: ServerSettings) -> SpecRAG:
    rag = SpecRAG.load(settings.pipeline, docs=settings.docs)
    rag.engine.limits = settings.limits
    rag.warm_up()
    return rag


async def _rag_of(request: Request) -> Pipeline:
    # A coroutine: a plain function would wait for a worker thread, and questions may hold them all.
    rag: Pipeline = request.app.state.rag
    return rag


Rag = Annotated[Pipeline, Depends(_rag_of)]
"""Parameter type of a route that needs the pipeline."""


async def _metrics_of(request: Request) -> ServerMetrics:
    metrics: ServerMetrics = request.app.state.metrics
    return metrics


Metrics = Annotated[ServerMetrics, Depends(_metrics_of)]
"""Parameter type of a route that counts."""


async def _settings_of(request: Request) -> ServerSettings:
    settings: ServerSettings = request.app.state.settings
    return settings


Settings = Annotated[ServerSettings, Depends(_settings_of)]
"""Parameter type of a route that needs the settings."""
