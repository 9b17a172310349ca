"""A whole run: answer, decide, judge, summarise, and write what was found."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specrag.errors import GateError
from specrag.evaluation.datasets.item import EvalDataset
from specrag.evaluation.metrics.judge import headline, judged
from specrag.evaluation.qa.answers import Raw, answer_all
from specrag.evaluation.qa.decisions import (
    cross_fitted_decisions,
    paired,
    pipeline_decisions,
)
from specrag.evaluation.qa.gate_curves import gate_figures
from specrag.evaluation.qa.records import Record, records_of
from specrag.evaluation.qa.settings import QaSettings, configuration
from specrag.evaluation.qa.summary import summarise
from specrag.evaluation.reports.report import Report
from specrag.gate.policy import GateDecision
from specrag.rag.pipeline import Pipeline

ITEMS_NAME = "items.jsonl"


@dataclass(frozen=True, slots=True)
class QaRun:
    """What a run found.

    Attributes:
        report: Figures and all that it takes to repeat them.
        records: One a question and mode, as written to ``items.jsonl``.
        notes: What a reader of the figures must know.
    """

    report: Report
    records: tuple[Record, ...]
    notes: tuple[str, ...]


def evaluate(
    pipeline: Pipeline,
    dataset: EvalDataset,
    settings: QaSettings,
    folder: Path,
    *,
    restart: bool = False,
    on_progress: Callable[[int], None] = lambda _: None,
) -> QaRun:
    """Answers a set of questions in several modes and measures the answers.

    A run that was ended goes on where it was. ``items.jsonl`` is written into the folder.

    Args:
        pipeline: Answers the questions.
        dataset: The questions, sampled already.
        settings: Of the run.
        folder: Of the run; made if it does not exist.
        restart: Whether to throw away what an earlier run has left.
        on_progress: Called with the number of questions done.

    Raises:
        ConfigError: The folder holds a run of other settings, or a mode needs an index.
        InputError: The folder cannot be written to.
    """
    raws = answer_all(pipeline, dataset, settings, folder, restart=restart, on_progress=on_progress)
    decisions, notes = _decisions(pipeline, dataset, settings, raws)
    records = records_of(dataset, raws, decisions, settings.modes, run_code=settings.run_code)
    _write(folder / ITEMS_NAME, records)
    figures = summarise(records, settings.modes, settings.seed)
    figures["gate"] = _gate(dataset, settings, raws, records, decisions)
    report = Report(
        kind="qa",
        title=f"{dataset.name}: {len(dataset.items)} questions, pipeline {pipeline.name}",
        configuration={
            **configuration(pipeline, dataset, settings),
            "accuracy": headline(dataset.task),
            "notes": notes,
        },
        figures=figures,
        seed=settings.seed,
    )
    return QaRun(report, tuple(records), tuple(notes))


def _decisions(
    pipeline: Pipeline, dataset: EvalDataset, settings: QaSettings, raws: Sequence[Raw]
) -> tuple[Mapping[str, GateDecision], list[str]]:
    notes = []
    if settings.batch_size > 1:
        notes.append(
            f"{settings.batch_size} questions were decoded together; times are shares of a batch"
        )
    if "auto" not in settings.modes:
        return {}, notes
    notes.append("mode auto is put together from the other two answers, which are its own")
    if settings.cross_fit:
        try:
            needed = _needed(dataset, raws, settings.run_code)
            decided = cross_fitted_decisions(pipeline, dataset.items, raws, needed, settings.seed)
        except GateError as error:
            notes.append(f"no gate could be fitted on this run: {error.message}")
        else:
            notes.append("the gate was fitted on this run, out of fold")
            return decided, notes
    decided = pipeline_decisions(pipeline, dataset.items, raws)
    fixed = {decision.reason for decision in decided.values() if decision.zone == "fixed"}
    notes += [f"gate: {reason}" for reason in sorted(fixed)]
    return decided, notes


def _needed(dataset: EvalDataset, raws: Sequence[Raw], run_code: bool) -> dict[str, bool]:
    """Tells for each question whether closed book is wrong: what the gate's probability is of."""
    measure, pairs = headline(dataset.task), paired(raws)
    found = {}
    for item in dataset.items:
        never, _ = pairs[item.id]
        scores = judged(dataset.task, item, never["answer"]["answer"], run_code=run_code)
        right = scores[measure]
        if right is None:
            raise GateError("the set has no accuracy to fit a gate on")
        found[item.id] = right < 1
    return found


def _gate(
    dataset: EvalDataset,
    settings: QaSettings,
    raws: Sequence[Raw],
    records: Sequence[Record],
    decisions: Mapping[str, GateDecision],
) -> dict[str, Any] | None:
    if not {"never", "always", "auto"} <= set(settings.modes):
        return None
    measure = headline(dataset.task)
    return gate_figures(dataset.items, raws, records, decisions, measure, settings.seed)


def _write(path: Path, records: Sequence[Record]) -> None:
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        for record in records:
            file.write(f"{json.dumps(record, ensure_ascii=False)}\n")
    partial.replace(path)
