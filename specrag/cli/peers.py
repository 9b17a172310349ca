"""`specrag peers`: the other engines that `specrag bench --peers` measures."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from specrag.cli.output import echo_json

app = typer.Typer(no_args_is_help=True)


@app.command()
def install(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Peers; all by default.")
    ] = None,
    pip_args: Annotated[str, typer.Option(help="Further options of pip install.")] = "",
) -> None:
    """Installs other engines into an environment of their own."""
    from specrag.evaluation.peers.catalog import install_peers

    failed = install_peers(names or [], shlex.split(pip_args))
    for name, reason in failed.items():
        typer.echo(f"{name}: {reason}", err=True)
    if failed:
        raise typer.Exit(1)
    typer.echo("installed")


@app.command("list")
def list_peers(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Lists the engines and whether they are installed."""
    from specrag.evaluation.peers.catalog import PEERS

    rows = [
        {"name": name, "installed": peer.version is not None, "version": peer.version or None}
        | {"help": peer.help}
        for name, peer in PEERS.items()
    ]
    if as_json:
        echo_json(rows)
        return
    for name, peer in PEERS.items():
        state = peer.version
        shown = "not installed" if state is None else state or "with specrag"
        typer.echo(f"{name:<28}{shown:<15}{peer.help}")
