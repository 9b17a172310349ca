"""`specrag serve`: the HTTP server."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from specrag.cli.arguments import load_rag
from specrag.extras import require_extra

_Host = Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")]
_Port = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="Port; 0 takes any free one.", show_default="8000"),
]
_Pipeline = Annotated[
    str | None,
    typer.Option("--pipeline", "-p", help="Name or TOML file of a pipeline.", show_default="qa"),
]
_Docs = Annotated[
    str | None, typer.Option(metavar="DIR", help="Serve this folder or file instead of the index.")
]
_MaxBatch = Annotated[
    int | None, typer.Option(min=1, help="Questions decoded together.", show_default="8")
]
_MaxWaiting = Annotated[
    int | None, typer.Option(min=1, help="Questions that may wait.", show_default="64")
]
_Timeout = Annotated[
    float | None, typer.Option(help="Most seconds of an answer.", show_default="none")
]
_OpenToAll = Annotated[
    bool | None, typer.Option("--open-to-all", help="Serve other machines without a key.")
]
_Config = Annotated[Path | None, typer.Option(metavar="FILE", help="TOML file of settings.")]


def serve(
    host: _Host = None,
    port: _Port = None,
    pipeline: _Pipeline = None,
    docs: _Docs = None,
    max_batch: _MaxBatch = None,
    max_waiting: _MaxWaiting = None,
    timeout_s: _Timeout = None,
    open_to_all: _OpenToAll = None,
    config: _Config = None,
) -> None:
    """Answers POST /ask over HTTP until it is interrupted."""
    for module in ("fastapi", "uvicorn", "prometheus_client"):
        require_extra(module, "server")
    from specrag.server.listener import listen, reserve, run, url_of
    from specrag.server.settings import read_settings

    # Being told to stop is no failure: exit status 0, also while the models load.
    for wanted in (signal.SIGTERM, signal.SIGINT):
        signal.signal(wanted, _stop)
    settings = read_settings(
        config,
        host=host,
        port=port,
        pipeline=pipeline,
        docs=docs,
        max_batch=max_batch,
        max_waiting=max_waiting,
        timeout_s=timeout_s,
        open_to_all=open_to_all,
    )
    settings.check_exposure()
    # First of all: a port in use is known at once.
    with (
        reserve(settings.host, settings.port) as sock,
        load_rag(settings.pipeline, settings.docs) as rag,
    ):
        from specrag.server.app import create_app

        rag.engine.limits = settings.limits
        listen(sock)
        typer.echo(f"serving the pipeline {rag.name!r} on {url_of(sock)} (Ctrl-C stops it)")
        run(create_app(settings, rag), sock)


def _stop(_signal: int, _frame: object) -> None:
    raise SystemExit(0)
