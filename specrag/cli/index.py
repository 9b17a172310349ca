"""`specrag index`: build, search and inspect document indexes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specrag.cli.arguments import read_question, show_progress
from specrag.cli.output import bold, echo_field, echo_json, echo_quote
from specrag.errors import ConfigError

if TYPE_CHECKING:
    from specrag.rag.datastore import DatastoreReport
    from specrag.retrieval.build import BuildReport
    from specrag.retrieval.document import ScoredPassage

app = typer.Typer(no_args_is_help=True)

_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_DEFAULT_MODEL = "smollm2-135m-instruct"
_WHICH = "Name of a recipe, recipe file, or folder of documents."


@app.command("build")
def build(
    index: Annotated[str, typer.Argument(metavar="NAME|DIR|TOML", help=_WHICH)] = "handbook",
    force: Annotated[
        bool, typer.Option("--force", help="Build even if nothing has changed.")
    ] = False,
    datastore: Annotated[
        bool,
        typer.Option("--datastore", help="Also build what --drafter datastore:NAME drafts from."),
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(help="Whose tokens the datastore holds.", show_default=_DEFAULT_MODEL),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Builds an index, unless it is up to date."""
    if model is not None and not datastore:
        raise ConfigError(
            f"--model {model} says whose tokens a datastore holds, but none is asked for",
            hint="add --datastore",
        )
    from specrag.rag.build import build_named

    recipe, report = build_named(_source(index), progress=show_progress(), force=force)
    for failure in report.failures:
        typer.echo(f"left out {failure.path}: {failure.reason}", err=True)
    tokens = _build_datastore(recipe.name, model or _DEFAULT_MODEL, force) if datastore else None
    if as_json:
        echo_json(_report_dict(recipe.name, report, tokens))
        return
    typer.echo(
        f"{recipe.name}: {report.num_documents} documents, {report.num_passages} passages, "
        f"version {report.index_version}, {_state(report.built, report.seconds)}"
    )
    if tokens is not None:
        _echo_datastore(tokens)


@app.command("search")
def search(
    index: Annotated[str, typer.Argument(metavar="NAME|DIR|TOML", help=_WHICH)],
    query: Annotated[str, typer.Argument(help="What to search for; - reads standard input.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Most passages to show.")] = 5,
    as_json: _Json = False,
) -> None:
    """Shows the passages that a query finds, best first; builds the index if needed."""
    query = read_question(query)
    from specrag.rag.build import open_named
    from specrag.rag.events import PassagesEvent

    found = open_named(_source(index), show_progress()).retrieve(query, k)
    if as_json:
        echo_json(PassagesEvent(tuple(found)).to_dict())
        return
    for number, passage in enumerate(found, start=1):
        _echo_passage(number, passage)


@app.command("info")
def info(
    index: Annotated[
        str | None,
        typer.Argument(metavar="NAME|DIR|TOML", help="Which index; all of them by default."),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Shows what the built indexes hold."""
    if index is not None:
        one = _describe(_folder_of(index))
        if as_json:
            echo_json(one)
        else:
            _echo_description(one)
        return
    found = _describe_all()
    if as_json:
        echo_json(found)
        return
    for number, one in enumerate(found):
        typer.echo("\n" * bool(number), nl=False)
        _echo_description(one)
    if not found:
        typer.echo("no index has been built yet; build one with: specrag index build", err=True)


def _build_datastore(index: str, model: str, force: bool) -> DatastoreReport:
    from specrag.rag.datastore import build_datastore

    return build_datastore(index, model, progress=show_progress(), force=force)


def _echo_datastore(report: DatastoreReport) -> None:
    made = report.manifest
    typer.echo(
        f"datastore:{made.source}: {made.num_tokens} tokens of {made.model} in {made.num_texts} "
        f"texts, {made.num_bytes / 1e6:.1f} MB, {_state(report.built, report.seconds)}"
    )


def _state(built: bool, seconds: float) -> str:
    return f"built in {seconds:.1f} s" if built else "up to date"


def _source(index: str) -> str | Path:
    """A recipe's name, or else a path if there is something."""
    from specrag.home import known_definitions

    path = Path(index)
    is_path = path.suffix != ".toml" and path.exists()
    return path if is_path and index not in known_definitions("indexes") else index


def _folder_of(index: str) -> Path:
    from specrag.home import home

    folder = home() / "indexes" / index
    if index not in ("", ".", "..") and Path(index).name == index and folder.is_dir():
        return folder
    from specrag.rag.build import index_dir, named_recipe

    return index_dir(named_recipe(_source(index)).name)


def _describe(folder: Path) -> dict[str, Any]:
    from specrag.retrieval.generation import current_generation

    manifest = current_generation(folder).manifest
    return {
        "name": manifest.name,
        "path": str(folder),
        "documents": manifest.num_documents,
        "passages": manifest.num_passages,
        "encoder": manifest.encoder,
        "dimension": manifest.dimension,
        "bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        "created_at": manifest.created_at,
        "specrag_version": manifest.specrag_version,
        "index_version": manifest.index_version,
    }


def _describe_all() -> list[dict[str, Any]]:
    from specrag.errors import IndexFormatError
    from specrag.home import home

    found = []
    for folder in sorted((home() / "indexes").glob("*/")):
        try:
            found.append(_describe(folder))
        except IndexFormatError as error:  # the others are worth showing still
            typer.echo(f"left out {folder.name}: {error.message}", err=True)
    return found


def _echo_description(index: dict[str, Any]) -> None:
    typer.echo(bold(index["name"]))
    echo_field("  contents", f"{index['documents']} documents, {index['passages']} passages")
    echo_field("  encoder", f"{index['encoder']}, {index['dimension']} dimensions")
    echo_field("  size", f"{index['bytes'] / 1e6:.1f} MB")
    echo_field("  created", f"{index['created_at']} by specrag {index['specrag_version']}")
    echo_field("  version", index["index_version"])
    typer.echo(f"  {'path':<10}{index['path']}")  # not wrapped: it is for copying


def _report_dict(
    name: str, report: BuildReport, datastore: DatastoreReport | None
) -> dict[str, Any]:
    described = {
        "name": name,
        "path": str(report.path.parent),
        "documents": report.num_documents,
        "passages": report.num_passages,
        "index_version": report.index_version,
        "built": report.built,
        "seconds": round(report.seconds, 2),
        "failures": [{"path": str(f.path), "reason": f.reason} for f in report.failures],
    }
    if datastore is not None:
        described["datastore"] = _datastore_dict(datastore)
    return described


def _datastore_dict(report: DatastoreReport) -> dict[str, Any]:
    made = report.manifest
    return {
        "name": f"datastore:{made.source}",
        "path": str(report.path),
        "model": made.model,
        "tokenizer": made.tokenizer,
        "tokens": made.num_tokens,
        "texts": made.num_texts,
        "bytes": made.num_bytes,
        "built": report.built,
        "seconds": round(report.seconds, 2),
    }


def _echo_passage(number: int, found: ScoredPassage) -> None:
    passage = found.passage
    place = f"{passage.document}, characters {passage.start}-{passage.end}"
    typer.echo(f"{bold(f'[{number}]')} {place}, score {found.score:.2f}")
    if passage.heading:
        typer.echo(f"    {passage.heading}")
    echo_quote(passage.text)
    typer.echo()
