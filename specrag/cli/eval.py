"""`specrag eval`: how good the answers are on a set of questions, and how two runs differ."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specrag.cli.arguments import load_rag, show_progress
from specrag.cli.output import echo_json
from specrag.errors import ConfigError, InputError

if TYPE_CHECKING:
    from specrag.evaluation.datasets.item import EvalDataset
    from specrag.evaluation.reports.report import Report
    from specrag.rag.build import SpecRAG
    from specrag.retrieval.document import Document
    from specrag.retrieval.retriever import Retriever

app = typer.Typer(no_args_is_help=True)


@app.command()
def qa(
    dataset: Annotated[
        str, typer.Argument(help="File or folder of questions, or hub:NAME[:CONFIG].")
    ],
    pipeline: Annotated[str, typer.Option(help="Pipeline name or TOML file.")] = "qa",
    modes: Annotated[str, typer.Option(help="Modes, with commas.")] = "never,always,auto",
    format_name: Annotated[str, typer.Option("--format", help="Format of the set.")] = "auto",
    column: Annotated[
        list[str] | None, typer.Option(metavar="PART=NAME", help="Column of plain rows.")
    ] = None,
    split: Annotated[str, typer.Option(help="Split, where a set has several.")] = "",
    sample: Annotated[int | None, typer.Option(min=1, help="Questions to draw.")] = None,
    per_category: Annotated[int | None, typer.Option(min=1, help="Most of a category.")] = None,
    corpus: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="Documents to index instead.")
    ] = None,
    index: Annotated[str | None, typer.Option(help="Index recipe to ask instead.")] = None,
    k: Annotated[int | None, typer.Option(min=1, help="Passages to look up.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Most tokens an answer.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Questions decoded together.")] = 8,
    cross_fit: Annotated[
        bool, typer.Option("--cross-fit", help="Fit the gate on this run, out of fold.")
    ] = False,
    run_code: Annotated[
        bool, typer.Option("--run-code", help="Run programs that the model wrote.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of sample, sampling and intervals.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.")] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Throw an earlier run of the folder away.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Answers a set of questions in several modes and measures the answers."""
    from tqdm import tqdm

    from specrag.evaluation.datasets.catalog import load_dataset
    from specrag.evaluation.datasets.catalog import sample as drawn
    from specrag.evaluation.qa.run import evaluate
    from specrag.evaluation.qa.settings import QaSettings

    wanted = tuple(name.strip() for name in modes.split(",") if name.strip())
    settings = QaSettings(wanted, batch_size, seed, max_tokens, k, cross_fit, run_code)
    loaded = load_dataset(dataset, format_name, _columns(column), split)
    questions = drawn(loaded, sample, seed, per_category)
    rag = _pipeline(pipeline, loaded, corpus or [], index, settings.branches)
    folder = out or Path("runs") / f"qa-{loaded.name}-{rag.name}"
    with tqdm(total=len(questions.items), desc="questions", disable=not show_progress()) as bar:

        def show(done: int) -> None:
            bar.update(done - bar.n)

        run = evaluate(rag, questions, settings, folder, restart=restart, on_progress=show)
    _echo_report(run.report, folder, as_json)


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(help="A report, or the folder of a run.")],
    second: Annotated[Path, typer.Argument(help="Another of the same questions.")],
    seed: Annotated[int, typer.Option(help="Of the intervals.")] = 0,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Holds two reports against each other, question by question, with intervals."""
    from specrag.evaluation.reports.compare import compare as compared
    from specrag.evaluation.reports.compare import render_comparison

    found = compared(first, second, seed)
    if as_json:
        echo_json(found)
    else:
        typer.echo(render_comparison(found, markdown=markdown))


def _echo_report(report: Report, folder: Path, as_json: bool) -> None:
    from specrag.evaluation.reports.terminal import qa_table
    from specrag.evaluation.reports.written import write_report

    written = write_report(report, folder)
    if as_json:
        echo_json(report.to_dict())
    else:
        typer.echo(qa_table(report))
    for path in written:
        typer.echo(f"written: {path}", err=True)


def _columns(words: list[str] | None) -> dict[str, str]:
    found = {}
    for word in words or ():
        part, sign, name = word.partition("=")
        if not sign or not part or not name:
            raise ConfigError(
                f"--column needs a part and a name, got {word!r}",
                hint="such as --column question=prompt",
            )
        found[part] = name
    return found


def _pipeline(
    name: str,
    dataset: EvalDataset,
    corpus: list[str],
    index: str | None,
    branches: tuple[str, ...],
) -> SpecRAG:
    """Loads the pipeline over the documents that the questions are about."""
    from specrag.rag.config import load_pipeline

    if corpus and index is not None:
        raise ConfigError("--corpus and --index exclude each other", hint="give one of them")
    config = load_pipeline(name)
    if "always" not in branches:
        return load_rag(replace(config, retrieval=replace(config.retrieval, index="")))
    if index is not None:
        return load_rag(config, index=index)
    return load_rag(config, index=_opened(dataset, corpus))


def _opened(dataset: EvalDataset, corpus: list[str]) -> Retriever:
    from specrag.evaluation.datasets.catalog import load_documents
    from specrag.rag.build import open_documents

    if not corpus and not dataset.documents:
        raise ConfigError(
            f"the set {dataset.name!r} comes without documents",
            hint="name some with --corpus or --index, or use --modes never",
        )
    parts = [load_documents(source) for source in corpus] or [dataset.documents]
    found: dict[str, Document] = {}
    for document in (document for part in parts for document in part):
        if found.setdefault(document.id, document).text != document.text:
            raise InputError(
                f"two corpora have a document with the id {document.id!r}",
                hint="rename one of them",
            )
    # Named after what is in it, so that runs over the same documents share an index.
    digest = hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest()[:8]
    name = f"eval-{'corpus' if corpus else dataset.name}-{digest}"
    return open_documents(tuple(found.values()), name, progress=show_progress())
