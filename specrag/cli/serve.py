"""`specrag serve`: the HTTP server."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from specrag.cli.arguments import load_rag
from specrag.extras import require_extra


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes any free one.")] = 8000,
    pipeline: Annotated[
        str, typer.Option("--pipeline", "-p", help="Name or TOML file of a pipeline.")
    ] = "qa",
    docs: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Serve this folder or file instead of the index."),
    ] = None,
) -> None:
    """Answers POST /ask over HTTP until it is interrupted."""
    for module in ("fastapi", "uvicorn"):
        require_extra(module, "server")
    from specrag.server.listener import listen, reserve, run, url_of
    from specrag.server.settings import ServerSettings

    # Being told to stop is no failure: exit status 0, also while the models load.
    for wanted in (signal.SIGTERM, signal.SIGINT):
        signal.signal(wanted, _stop)
    settings = ServerSettings(pipeline=pipeline, docs=docs, host=host, port=port)
    with reserve(host, port) as sock:  # first of all: a port in use is known at once
        rag = load_rag(pipeline, docs)
        from specrag.server.app import create_app

        listen(sock)
        typer.echo(f"serving the pipeline {rag.name!r} on {url_of(sock)} (Ctrl-C stops it)")
        run(create_app(settings, rag), sock)


def _stop(_signal: int, _frame: object) -> None:
    raise SystemExit(0)
