"""`specrag index benchmark`: what a search of vectors costs on this machine, by number and kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specrag.cli import index_changes  # noqa: F401 - its commands come with this one
from specrag.cli.arguments import show_progress
from specrag.cli.index import app
from specrag.cli.index_options import Json
from specrag.cli.output import echo_json
from specrag.errors import ConfigError

if TYPE_CHECKING:
    from specrag.evaluation.vector_search.run import Report

_SIZES = "10000,100000"
_FACTORIES = "flat,hnsw,ivf-pq"


@app.command("benchmark")
def benchmark(
    sizes: Annotated[
        str, typer.Option(metavar="NUMBERS", help="Numbers of vectors, with commas.")
    ] = _SIZES,
    factories: Annotated[
        str, typer.Option(metavar="NAMES", help="Kinds of index; semicolons between factories.")
    ] = _FACTORIES,
    dimension: Annotated[int, typer.Option(min=1, help="Length of a vector.")] = 384,
    k: Annotated[int, typer.Option("-k", min=1, help="Neighbours of a query.")] = 10,
    num_queries: Annotated[int, typer.Option(min=1, help="Queries, one by one.")] = 200,
    seed: Annotated[int, typer.Option(help="Of the vectors.")] = 0,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for figures and picture.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measures building, searching, adding and removing over made-up vectors."""
    from specrag.evaluation.vector_search.run import run_vector_benchmark
    from specrag.evaluation.vector_search.settings import VectorBenchmarkSettings
    from specrag.evaluation.vector_search.table import vector_table

    settings = VectorBenchmarkSettings(
        sizes=_numbers(sizes),
        factories=_names(factories),
        dimension=dimension,
        k=k,
        num_queries=num_queries,
        seed=seed,
    )
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)

    def keep(report: Report) -> None:
        if out is not None:
            text = json.dumps(report, indent=1)
            (out / "vector_search.json").write_text(text, encoding="utf-8")

    report = run_vector_benchmark(settings, progress=show_progress(), keep=keep)
    if out is not None:
        _draw(report, out)
    if as_json:
        echo_json(report)
    else:
        typer.echo(vector_table(report))


def _draw(report: Report, out: Path) -> None:
    from specrag.evaluation.plots.canvas import save
    from specrag.evaluation.vector_search.plot import cost_against_size, recall_against_time

    pictures = {"vector_search": cost_against_size, "vector_effort": recall_against_time}
    for name, draw in pictures.items():
        figure = draw(report)
        if figure is not None:
            for suffix in ("png", "svg"):
                save(figure, out / f"{name}.{suffix}")
    typer.echo(f"wrote {out}", err=True)


def _names(typed: str) -> tuple[str, ...]:
    # A factory string has commas of its own.
    sign = ";" if ";" in typed else ","
    return tuple(name.strip() for name in typed.split(sign) if name.strip())


def _numbers(typed: str) -> tuple[int, ...]:
    try:
        return tuple(int(word.replace("_", "")) for word in typed.split(",") if word.strip())
    except ValueError as error:
        raise ConfigError(
            f"--sizes needs whole numbers with commas, got {typed!r}", hint="such as 10000,100000"
        ) from error
