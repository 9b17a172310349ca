"""`specrag index add`, `remove`, `compact` and `check`: one index changed in place, or checked."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specrag.cli.arguments import show_progress
from specrag.cli.index import app
from specrag.cli.index_options import (
    Json,
    Strict,
    Wait,
    changes_dict,
    echo_failures,
    source_of,
)
from specrag.cli.output import echo_json
from specrag.locking import WAIT_SECONDS

if TYPE_CHECKING:
    from specrag.retrieval.generation import Generation

_Index = Annotated[str, typer.Argument(metavar="NAME|DIR|TOML", help="Which index.")]


@app.command("add")
def add(
    index: _Index,
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Files, folders or -, standard input.")
    ],
    name: Annotated[
        str, typer.Option(metavar="ID", help="Id of the document from standard input.")
    ] = "stdin",
    strict: Strict = False,
    wait: Wait = WAIT_SECONDS,
    as_json: Json = False,
) -> None:
    """Adds files and folders to an index; later syncs follow them too."""
    from specrag.rag.named_indexes import write_named
    from specrag.retrieval.sync import add_document, add_roots

    progress = show_progress()
    with write_named(source_of(index), progress=progress, wait_seconds=wait) as writer:
        files = [Path(path) for path in paths if path != "-"]
        report = add_roots(writer, files, strict=strict, progress=progress)
        if "-" in paths:
            add_document(writer, sys.stdin.buffer, name, report)
        generation = writer.commit()
    echo_failures(report.failures, report.passed_over)
    if as_json:
        echo_json({**_index_dict(generation), **changes_dict(report)})
        return
    for sign, keys in (("+", report.added), ("~", report.updated), ("-", report.removed)):
        for key in keys:
            typer.echo(f"{sign} {key}")
    _echo_generation(generation)


@app.command("remove")
def remove(
    index: _Index,
    names: Annotated[
        list[str], typer.Argument(metavar="DOCUMENT...", help="Ids, or paths of files or folders.")
    ],
    compact: Annotated[
        bool, typer.Option("--compact", help="Also wipe the text from the files of the index.")
    ] = False,
    wait: Wait = WAIT_SECONDS,
    as_json: Json = False,
) -> None:
    """Removes documents; they stay away even if their files are still there."""
    from specrag.rag.named_indexes import write_named
    from specrag.retrieval.sync import remove_named

    with write_named(source_of(index), progress=show_progress(), wait_seconds=wait) as writer:
        gone = remove_named(writer, names)
        generation = writer.compact() if compact else writer.commit()
    if as_json:
        echo_json({**_index_dict(generation), "removed": gone})
        return
    for key in gone:
        typer.echo(f"- {key}")
    _echo_generation(generation)


@app.command("compact")
def compact(index: _Index, wait: Wait = WAIT_SECONDS, as_json: Json = False) -> None:
    """Merges the segments of an index and wipes what was removed from its files."""
    from specrag.rag.named_indexes import write_named

    with write_named(source_of(index), progress=show_progress(), wait_seconds=wait) as writer:
        generation = writer.compact()
    if as_json:
        echo_json(_index_dict(generation))
        return
    _echo_generation(generation)


@app.command("check")
def check(index: _Index, as_json: Json = False) -> None:
    """Compares every byte of an index with its checksums, and its parts with each other."""
    from specrag.cli.index import folder_of
    from specrag.retrieval.check import check_index

    report = check_index(folder_of(index), progress=show_progress())
    if as_json:
        echo_json(
            {
                "path": str(report.path),
                "sound": report.is_sound,
                "problems": [
                    {"path": str(one.path), "message": one.message} for one in report.problems
                ],
                "notes": list(report.notes),
                "files": report.num_files,
                "bytes": report.num_bytes,
            }
        )
    else:
        for problem in report.problems:
            typer.echo(f"{problem.path}: {problem.message}", err=True)
        for note in report.notes:
            typer.echo(note, err=True)
        size = f"{report.num_files} files, {report.num_bytes / 1e6:.1f} MB"
        typer.echo(f"sound: {size}" if report.is_sound else f"damaged; {size} were compared")
    if not report.is_sound:
        typer.echo(f"build it again: specrag index build {index} --force", err=True)
        raise typer.Exit(1)


def _index_dict(generation: Generation) -> dict[str, object]:
    manifest = generation.manifest
    return {
        "name": manifest.name,
        "path": str(generation.path),
        "documents": manifest.num_documents,
        "passages": manifest.num_passages,
        "segments": len(manifest.segments),
        "index_version": manifest.index_version,
    }


def _echo_generation(generation: Generation) -> None:
    manifest = generation.manifest
    typer.echo(
        f"{manifest.name}: {manifest.num_documents} documents, {manifest.num_passages} passages, "
        f"version {manifest.index_version}"
    )
