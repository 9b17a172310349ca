"""A whole run: ask every retriever every question, judge, summarise, and write what was found."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specrag.errors import ConfigError, InputError
from specrag.evaluation.datasets.item import EvalDataset
from specrag.evaluation.reports.report import Report
from specrag.evaluation.retrieval.judgements import (
    has_several,
    judged,
    left_out,
    num_absent,
    num_judgements,
)
from specrag.evaluation.retrieval.records import Record, record_of
from specrag.evaluation.retrieval.settings import CUT, RetrievalSettings, configuration
from specrag.evaluation.retrieval.summary import summarise
from specrag.retrieval.retriever import Retriever

ITEMS_NAME = "items.jsonl"


@dataclass(frozen=True, slots=True)
class RetrievalRun:
    """What a run found.

    Attributes:
        report: Figures and all that it takes to repeat them.
        records: One a question and retriever, as written to ``items.jsonl``.
    """

    report: Report
    records: tuple[Record, ...]


def evaluate(
    retrievers: Mapping[str, Retriever],
    dataset: EvalDataset,
    settings: RetrievalSettings,
    folder: Path,
    *,
    indexed: Collection[str] | None = None,
    sizes: Mapping[str, int] | None = None,
    notes: Sequence[str] = (),
    on_progress: Callable[[int], None] = lambda _: None,
) -> RetrievalRun:
    """Asks retrievers the questions of a set and measures how well they find what answers them.

    ``items.jsonl`` is written into the folder. Questions without a relevant document are left
    out.

    Args:
        retrievers: By name; differences are told between all pairs of them.
        dataset: The questions, sampled already.
        settings: Of the run.
        folder: Of the run; made if it does not exist.
        indexed: Ids of the documents that can be found; None where they are not known.
        sizes: What the index holds, such as the number of ``passages``.
        notes: What else a reader of the figures must know.
        on_progress: Called with the number of lookups done.

    Raises:
        ConfigError: There is no retriever, or no relevant document can be found.
        InputError: The set judges no document, or the folder cannot be written to.
    """
    if not retrievers:
        raise ConfigError("there is no retriever to evaluate", hint="name at least one")
    kept = judged(dataset)
    told = [*_about(settings), *notes, *left_out(dataset)]
    if indexed is not None and (absent := num_absent(kept, indexed)):
        told.append(f"{absent} relevant documents are not in the index; they count as not found")
    _make(folder)
    records = _asked(retrievers, kept, settings, on_progress)
    _write(folder, records)
    figures = summarise(records, list(retrievers), settings.seed)
    figures["collection"] = {
        **(sizes or {}),
        "questions": len(kept.items),
        "judgements": num_judgements(kept),
    }
    if not any(row["scores"][f"recall@{max(settings.k)}"] for row in records):
        told.append("no relevant document was found; is the index that of the set?")
    report = Report(
        kind="retrieval",
        title=f"{dataset.name}: {len(kept.items)} questions, {', '.join(retrievers)}",
        configuration={**configuration(retrievers, kept, settings), "notes": told},
        figures=figures,
        seed=settings.seed,
    )
    return RetrievalRun(report, tuple(records))


def _about(settings: RetrievalSettings) -> list[str]:
    gain = "linear gain, as in trec_eval" if settings.gain == "linear" else "exponential gain"
    return [
        f"documents are ranked by their best passage; nDCG@{CUT} has {gain}",
        f"times are those of one lookup of {settings.depth} passages, the encoding included",
    ]


def _asked(
    retrievers: Mapping[str, Retriever],
    dataset: EvalDataset,
    settings: RetrievalSettings,
    on_progress: Callable[[int], None],
) -> list[Record]:
    several = has_several(dataset)
    records: list[Record] = []
    for name, retriever in retrievers.items():
        # What only the first lookup pays for would be the slowest of them.
        retriever.warm_up()
        retriever.retrieve(dataset.items[0].question, settings.depth)
        for item in dataset.items:
            records.append(record_of(name, retriever, item, settings, several))
            on_progress(len(records))
    return records


def _make(folder: Path) -> None:
    """Makes the folder of the run, before time is spent on figures that it could not take."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make the folder {str(folder)!r}: {error.strerror}",
            hint="name a folder that you may write to",
        ) from error


def _write(folder: Path, records: Sequence[Record]) -> None:
    path = folder / ITEMS_NAME
    partial = folder / f".{ITEMS_NAME}.partial"
    with partial.open("w", encoding="utf-8") as file:
        for record in records:
            file.write(f"{json.dumps(record, ensure_ascii=False)}\n")
    partial.replace(path)
