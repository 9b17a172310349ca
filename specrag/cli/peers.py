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
    from specrag.evaluation.peers.engines import PEERS, install_peers

    outcome = install_peers(names or [], shlex.split(pip_args))
    for name, failure in outcome.items():
        typer.echo(f"{name:<28}{f'failed: {failure}' if failure else PEERS[name].version}")
    if any(outcome.values()):
        raise typer.Exit(1)


@app.command("list")
def list_peers(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Lists the engines and whether they are installed."""
    from specrag.evaluation.peers.engines import PEERS

    versions = {name: peer.version for name, peer in PEERS.items()}
    if as_json:
        echo_json(
            [
                {
                    "name": name,
                    "installed": versions[name] is not None,
                    "version": versions[name],
                    "needs": peer.needs or None,
                    "help": peer.help,
                }
                for name, peer in PEERS.items()
            ]
        )
        return
    for name, peer in PEERS.items():
        typer.echo(f"{name:<28}{versions[name] or f'not installed: specrag peers install {name}'}")
        typer.echo(f"  {peer.help}{f' (needs {peer.needs})' if peer.needs else ''}")
