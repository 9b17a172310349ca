"""`specrag index`: build, search and inspect document indexes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specrag.cli.arguments import read_question, show_progress
from specrag.cli.index_options import (
    Json,
    Strict,
    Wait,
    build_report,
    changes_dict,
    echo_report,
    source_of,
    state,
)
from specrag.cli.output import bold, echo_field, echo_json, echo_quote, place_of
from specrag.errors import ConfigError
from specrag.locking import WAIT_SECONDS

if TYPE_CHECKING:
    from specrag.rag.datastore import DatastoreReport
    from specrag.retrieval.build import BuildReport
    from specrag.retrieval.document import ScoredPassage

app = typer.Typer(no_args_is_help=True)

_DEFAULT_MODEL = "smollm2-135m-instruct"
_WHICH = "Name of a recipe, recipe file, or folder of documents."


@app.command("build")
def build(
    index: Annotated[str, typer.Argument(metavar="NAME|DIR|TOML", help=_WHICH)] = "handbook",
    force: Annotated[
        bool, typer.Option("--force", help="Write everything anew, even if nothing has changed.")
    ] = False,
    strict: Strict = False,
    wait: Wait = WAIT_SECONDS,
    datastore: Annotated[
        bool,
        typer.Option("--datastore", help="Also build what --drafter datastore:NAME drafts from."),
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(help="Whose tokens the datastore holds.", show_default=_DEFAULT_MODEL),
    ] = None,
    as_json: Json = False,
) -> None:
    """Builds an index, or brings it up to date."""
    if model is not None and not datastore:
        raise ConfigError(
            f"--model {model} says whose tokens a datastore holds, but none is asked for",
            hint="add --datastore",
        )
    name, report = build_report(index, force=force, strict=strict, wait=wait)
    tokens = _build_datastore(name, model or _DEFAULT_MODEL, force) if datastore else None
    if as_json:
        echo_json(_report_dict(name, report, tokens))
        return
    echo_report(name, report)
    if tokens is not None:
        _echo_datastore(tokens)


@app.command("sync")
def sync(
    index: Annotated[str, typer.Argument(metavar="NAME|DIR|TOML", help=_WHICH)] = "handbook",
    strict: Strict = False,
    wait: Wait = WAIT_SECONDS,
    as_json: Json = False,
) -> None:
    """Brings an index up to date with its files, and tells each document that changed."""
    name, report = build_report(index, strict=strict, wait=wait)
    if as_json:
        echo_json(_report_dict(name, report, None))
        return
    for sign, keys in zip("+~-", (report.changes.added, report.changes.updated,
                                  report.changes.removed), strict=True):  # fmt: skip
        for key in keys:
            typer.echo(f"{sign} {key}")
    echo_report(name, report)


@app.command("search")
def search(
    index: Annotated[str, typer.Argument(metavar="NAME|DIR|TOML", help=_WHICH)],
    query: Annotated[str, typer.Argument(help="What to search for; - reads standard input.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Most passages to show.")] = 5,
    mode: Annotated[
        str | None,
        typer.Option(metavar="dense|bm25|hybrid", help="How to search; as the recipe says."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="CONDITION", help="Such as year>=2020 or lang=en; repeat it."),
    ] = None,
    diversity: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="How much passages must differ.")
    ] = 0.0,
    reranker: Annotated[
        str, typer.Option(metavar="MODEL", help="Cross-encoder that orders the best anew.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Shows the passages that a query finds, best first; builds the index if needed."""
    query = read_question(query)
    from specrag.rag.events import PassagesEvent
    from specrag.rag.named_indexes import named_recipe, named_reranker, open_named
    from specrag.retrieval.filters import Filter
    from specrag.retrieval.search_settings import SearchSettings

    chosen = Filter.parse(where) if where else None
    source = source_of(index)
    settings = SearchSettings(mode or named_recipe(source).search, diversity=diversity)  # type: ignore[arg-type]
    ranking = named_reranker(reranker) if reranker else None
    opened = open_named(source, show_progress(), settings, ranking)
    found = opened.retrieve(query, k, chosen)
    if as_json:
        echo_json(PassagesEvent(tuple(found)).to_dict())
        return
    for number, passage in enumerate(found, start=1):
        _echo_passage(number, passage)
    if not found:
        typer.echo("nothing was found", err=True)


@app.command("info")
def info(
    index: Annotated[
        str | None,
        typer.Argument(metavar="NAME|DIR|TOML", help="Which index; all of them by default."),
    ] = None,
    documents: Annotated[
        bool, typer.Option("--documents", help="List the documents of one index.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Shows what the built indexes hold."""
    if documents:
        _list_documents(index, as_json)
        return
    if index is not None:
        one = _describe(folder_of(index))
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
        f"texts, {made.num_bytes / 1e6:.1f} MB, {state(report.built, report.seconds)}"
    )


def folder_of(index: str) -> Path:
    """Returns the folder of an index that was built or will be.

    Args:
        index: As typed.
    """
    from specrag.home import home

    folder = home() / "indexes" / index
    if index not in ("", ".", "..") and Path(index).name == index and folder.is_dir():
        return folder
    from specrag.rag.named_indexes import index_dir, named_recipe

    return index_dir(named_recipe(source_of(index)).name)


def _describe(folder: Path) -> dict[str, Any]:
    from specrag.retrieval.generation import current_generation

    manifest = current_generation(folder).manifest
    made = manifest.origin
    return {
        "name": manifest.name,
        "path": str(folder),
        "documents": manifest.num_documents,
        "passages": manifest.num_passages,
        "encoder": made.encoder,
        "dimension": made.dimension,
        "vectors": made.vectors,
        "segments": len(manifest.segments),
        "added": list(manifest.roots),
        "left_out": list(manifest.excluded),
        "bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        "created_at": manifest.created_at,
        "specrag_version": manifest.specrag_version,
        "index_version": manifest.index_version,
    }


def _list_documents(index: str | None, as_json: bool) -> None:
    if index is None:
        raise ConfigError("--documents lists those of one index", hint="name it")
    from specrag.retrieval.document_index import DocumentIndex

    with DocumentIndex.open(folder_of(index), check=False) as opened:
        found = opened.documents()
    if as_json:
        names = ("id", "source", "title", "metadata", "num_characters", "num_passages")
        echo_json([{name: getattr(one, name) for name in names} for one in found])
        return
    for one in found:
        typer.echo(f"{one.id}  {one.num_passages} passages")


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
    echo_field("  vectors", f"{index['vectors']}, segments: {index['segments']}")
    echo_field("  size", f"{index['bytes'] / 1e6:.1f} MB")
    echo_field("  created", f"{index['created_at']} by specrag {index['specrag_version']}")
    echo_field("  version", index["index_version"])
    typer.echo(f"  {'path':<10}{index['path']}")  # not wrapped: it is for copying


def _report_dict(
    name: str, report: BuildReport, datastore: DatastoreReport | None
) -> dict[str, Any]:
    described = {
        "name": name,
        "path": str(report.path),
        "documents": report.num_documents,
        "passages": report.num_passages,
        "index_version": report.index_version,
        "built": report.built,
        **changes_dict(report.changes),
        "encoded": report.num_encoded,
        "seconds": round(report.seconds, 2),
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
    typer.echo(f"{bold(f'[{number}]')} {place_of(passage)}, score {found.score:.2f}")
    if passage.heading:
        typer.echo(f"    {passage.heading}")
    echo_quote(passage.text)
    typer.echo()
