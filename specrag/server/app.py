"""The HTTP application."""

from __future__ import annotations

import importlib.metadata

from fastapi import FastAPI

from specrag.rag.pipeline import Pipeline
from specrag.server import problems, routes_ask, routes_ops
from specrag.server.settings import ServerSettings
from specrag.server.state import lifespan_of


def create_app(settings: ServerSettings | None = None, rag: Pipeline | None = None) -> FastAPI:
    """Makes the application; its pipeline is loaded when it starts.

    Args:
        settings: What to serve; the defaults of ``specrag serve``.
        rag: A pipeline that is loaded already, to serve instead.
    """
    app = FastAPI(
        title="specrag",
        version=_version(),
        summary="Answers questions from documents, with citations.",
        lifespan=lifespan_of(settings or ServerSettings(), rag),
    )
    problems.install(app)
    app.include_router(routes_ask.router)
    app.include_router(routes_ops.router)
    return app


def _version() -> str:
    try:
        return importlib.metadata.version("specrag")
    except importlib.metadata.PackageNotFoundError:
        return "source"  # run from a checkout that is not installed
