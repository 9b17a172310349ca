"""The HTTP application."""

from __future__ import annotations

import importlib.metadata

from fastapi import Depends, FastAPI
from fastapi.middleware.cors import CORSMiddleware

from specrag.rag.pipeline import Pipeline
from specrag.server import problems, routes_ask, routes_ops
from specrag.server.access import needs
from specrag.server.body_limit import BodyLimit
from specrag.server.settings import ServerSettings
from specrag.server.state import lifespan_of


def create_app(settings: ServerSettings | None = None, rag: Pipeline | None = None) -> FastAPI:
    """Makes the application; its pipeline is loaded when it starts.

    Args:
        settings: What to serve; the defaults of ``specrag serve``.
        rag: A pipeline that is loaded already, to serve instead; the limits of its engine are
            its own.
    """
    wanted = settings or ServerSettings()
    app = FastAPI(
        title="specrag",
        version=_version(),
        summary="Answers questions from documents, with citations.",
        lifespan=lifespan_of(wanted, rag),
    )
    app.state.settings = wanted
    problems.install(app)
    app.add_middleware(BodyLimit, max_bytes=wanted.max_body_kb << 10)
    if wanted.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(wanted.cors_origins),
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    app.include_router(routes_ask.router, dependencies=[Depends(needs("read"))])
    app.include_router(routes_ops.router)
    return app


def _version() -> str:
    try:
        return importlib.metadata.version("specrag")
    except importlib.metadata.PackageNotFoundError:
        return "source"  # run from a checkout that is not installed
