"""`specrag eval`: how good answers and retrieval are on a set of questions, and how runs differ."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from specrag.cli.arguments import load_rag, show_progress
from specrag.cli.output import echo_json
from specrag.errors import ConfigError, InputError

if TYPE_CHECKING:
    from specrag.evaluation.datasets.item import EvalDataset
    from specrag.evaluation.reports.report import Report
    from specrag.rag.build import SpecRAG
    from specrag.retrieval.document import Document
    from specrag.retrieval.retriever import IndexRetriever, Retriever
    from specrag.retrieval.search_settings import SearchMode

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
    from specrag.evaluation.datasets.catalog import load_dataset
    from specrag.evaluation.datasets.catalog import sample as drawn
    from specrag.evaluation.qa.run import evaluate
    from specrag.evaluation.qa.settings import QaSettings
    from specrag.evaluation.reports.terminal import qa_table

    wanted = tuple(name.strip() for name in modes.split(",") if name.strip())
    settings = QaSettings(wanted, batch_size, seed, max_tokens, k, cross_fit, run_code)
    loaded = load_dataset(dataset, format_name, _columns(column), split)
    questions = drawn(loaded, sample, seed, per_category)
    rag = _pipeline(pipeline, loaded, corpus or [], index, settings.branches)
    folder = out or Path("runs") / f"qa-{loaded.name}-{rag.name}"
    with _progress("questions", len(questions.items)) as show:
        run = evaluate(rag, questions, settings, folder, restart=restart, on_progress=show)
    _echo_report(run.report, folder, as_json, qa_table)


@app.command()
def retrieval(
    dataset: Annotated[
        str, typer.Argument(help="File or folder of questions, or hub:NAME[:CONFIG].")
    ],
    retrievers: Annotated[
        str, typer.Option(help="Ways of searching the index, with commas.")
    ] = "dense,bm25,hybrid",
    k: Annotated[
        str, typer.Option(help="Numbers of documents to report at, with commas.")
    ] = "1,5,10,100",
    gain: Annotated[
        str, typer.Option(help="What a grade is worth in nDCG: linear or exponential.")
    ] = "linear",
    format_name: Annotated[str, typer.Option("--format", help="Format of the set.")] = "auto",
    column: Annotated[
        list[str] | None, typer.Option(metavar="PART=NAME", help="Column of plain rows.")
    ] = None,
    split: Annotated[str, typer.Option(help="Split, where a set has several.")] = "",
    sample: Annotated[int | None, typer.Option(min=1, help="Questions to draw.")] = None,
    corpus: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="Documents to index instead.")
    ] = None,
    index: Annotated[str | None, typer.Option(help="Index recipe to ask instead.")] = None,
    seed: Annotated[int, typer.Option(help="Of sample and intervals.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Asks retrievers a set of questions and measures whether they find what answers them."""
    from specrag.evaluation.datasets.catalog import load_dataset
    from specrag.evaluation.datasets.catalog import sample as drawn
    from specrag.evaluation.metrics.passages import chosen_gain
    from specrag.evaluation.retrieval.judgements import judged, left_out
    from specrag.evaluation.retrieval.run import evaluate
    from specrag.evaluation.retrieval.settings import RetrievalSettings
    from specrag.evaluation.retrieval.table import retrieval_table
    from specrag.retrieval.search_settings import SearchSettings

    modes = _modes(retrievers)
    settings = RetrievalSettings(_numbers(k), chosen_gain(gain), seed)
    _check_one_source(corpus, index)
    loaded = load_dataset(dataset, format_name, _columns(column), split)
    questions = drawn(judged(loaded), sample, seed)
    opened, indexed = _searched(questions, corpus or [], index)
    asked: dict[str, Retriever] = {
        mode: opened.with_settings(SearchSettings(mode)) for mode in modes
    }
    held = opened.index.manifest
    folder = out or Path("runs") / f"retrieval-{loaded.name}"
    with _progress("lookups", len(asked) * len(questions.items)) as show:
        run = evaluate(
            asked,
            questions,
            settings,
            folder,
            indexed=indexed,
            sizes={"documents": held.num_documents, "passages": held.num_passages},
            notes=left_out(loaded),
            on_progress=show,
        )
    _echo_report(run.report, folder, as_json, retrieval_table)


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


@contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Shows a bar, and takes how many are done."""
    from tqdm import tqdm

    with tqdm(total=total, desc=what, disable=not show_progress()) as bar:

        def show(done: int) -> None:
            bar.update(done - bar.n)

        yield show


def _echo_report(
    report: Report, folder: Path, as_json: bool, table: Callable[[Report], str]
) -> None:
    from specrag.evaluation.reports.written import write_report

    written = write_report(report, folder)
    if as_json:
        echo_json(report.to_dict())
    else:
        typer.echo(table(report))
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


def _numbers(typed: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in typed.split(",") if word.strip())
    except ValueError as error:
        raise ConfigError(
            f"--k needs whole numbers with commas, got {typed!r}", hint="such as --k 1,5,10"
        ) from error


def _modes(typed: str) -> tuple[SearchMode, ...]:
    """Returns the ways of searching that were typed."""
    from specrag.retrieval.search_settings import SEARCH_MODES, SearchSettings

    names = [word.strip() for word in typed.split(",") if word.strip()]
    for name in names:
        SearchSettings(cast("SearchMode", name))  # names those that there are
    if not names or len(set(names)) < len(names):
        raise ConfigError(
            f"--retrievers needs names that differ, got {typed!r}",
            hint=f"known: {', '.join(SEARCH_MODES)}",
        )
    return tuple(cast("SearchMode", name) for name in names)


def _searched(
    questions: EvalDataset, corpus: list[str], index: str | None
) -> tuple[IndexRetriever, set[str] | None]:
    """Returns the index to search, and the ids of its documents where they are known."""
    from specrag.evaluation.retrieval.judgements import num_absent
    from specrag.rag.named_indexes import open_named
    from specrag.retrieval.retriever import IndexRetriever

    if index is None:
        documents = _documents(questions, corpus)
        indexed = {document.id for document in documents}
        num_absent(questions, indexed)  # before minutes are spent on their vectors
        opened = _opened_documents(documents, "corpus" if corpus else questions.name)
    else:
        indexed, opened = None, open_named(index, show_progress())
    assert isinstance(opened, IndexRetriever), "an index of a recipe or of documents is one of ours"
    return opened, indexed


def _pipeline(
    name: str,
    dataset: EvalDataset,
    corpus: list[str],
    index: str | None,
    branches: tuple[str, ...],
) -> SpecRAG:
    """Loads the pipeline over the documents that the questions are about."""
    from specrag.rag.config import load_pipeline

    _check_one_source(corpus, index)
    config = load_pipeline(name)
    if "always" not in branches:
        return load_rag(replace(config, retrieval=replace(config.retrieval, index="")))
    if index is not None:
        return load_rag(config, index=index)
    documents = _documents(dataset, corpus, " or use --modes never")
    return load_rag(
        config, index=_opened_documents(documents, "corpus" if corpus else dataset.name)
    )


def _check_one_source(corpus: list[str] | None, index: str | None) -> None:
    if corpus and index is not None:
        raise ConfigError("--corpus and --index exclude each other", hint="give one of them")


def _documents(
    dataset: EvalDataset, corpus: list[str], otherwise: str = ""
) -> tuple[Document, ...]:
    """Returns the documents to ask: those of the corpora, else those of the set."""
    from specrag.evaluation.datasets.catalog import load_documents

    if not corpus and not dataset.documents:
        raise ConfigError(
            f"the set {dataset.name!r} comes without documents",
            hint=f"name some with --corpus or --index{otherwise}",
        )
    parts = [load_documents(source) for source in corpus] or [dataset.documents]
    found: dict[str, Document] = {}
    for document in (document for part in parts for document in part):
        if found.setdefault(document.id, document).text != document.text:
            raise InputError(
                f"two corpora have a document with the id {document.id!r}",
                hint="rename one of them",
            )
    return tuple(found.values())


def _opened_documents(documents: tuple[Document, ...], name: str) -> Retriever:
    from specrag.rag.named_indexes import open_documents

    # Named after what is in it, so that runs over the same documents share an index.
    ids = sorted(document.id for document in documents)
    digest = hashlib.sha256("\n".join(ids).encode()).hexdigest()[:8]
    return open_documents(documents, f"eval-{name}-{digest}", progress=show_progress())
