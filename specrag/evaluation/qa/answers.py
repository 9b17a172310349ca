"""The answers of a run: made batch by batch, each kept on disk before the next one begins."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from specrag.evaluation.datasets.item import EvalDataset, EvalItem
from specrag.evaluation.qa.settings import QaSettings, answers_key
from specrag.evaluation.run_folder import LOCK_NAME, check_same_run, read_line, to_line
from specrag.gate.signals import LookupSignals
from specrag.locking import exclusive
from specrag.rag.batch import BatchAnswer, answer_closed_book, answer_open_book
from specrag.rag.pipeline import Pipeline

ANSWERS_NAME = "answers.jsonl"

Raw = Mapping[str, Any]
"""One answer as it is kept: ``id``, ``mode``, ``answer``, ``passages``, ``signals`` ..."""


def answer_all(
    pipeline: Pipeline,
    dataset: EvalDataset,
    settings: QaSettings,
    folder: Path,
    *,
    restart: bool = False,
    on_progress: Callable[[int], None] = lambda _: None,
) -> list[Raw]:
    """Answers every question in every branch, going on where an earlier run of this folder ended.

    Which questions share a batch depends on their order alone, and a batch counts only when all
    of it is on disk, so a run that was killed and resumed decodes the same batches.

    Args:
        pipeline: Answers the questions.
        dataset: The questions.
        settings: Of the run.
        folder: Of the run; made if it does not exist.
        restart: Whether to throw away what an earlier run has left.
        on_progress: Called with the number of questions done, those of earlier runs included.

    Raises:
        ConfigError: The folder holds a run of other settings.
        InputError: Another process is at it, or it cannot be written to.
    """
    busy, hint = "another run writes to", "wait, or choose another --out"
    with exclusive(folder, LOCK_NAME, busy, hint):
        check_same_run(folder, ANSWERS_NAME, answers_key(pipeline, dataset, settings), restart)
        batches = list(_batches(dataset.items, settings.batch_size))
        with (folder / ANSWERS_NAME).open("a+b") as file:
            done = _kept(file, batches, settings.branches)
            on_progress(sum(len(batch) for batch in batches[: len(done)]))
            for number, batch in enumerate(batches[len(done) :], start=len(done) + 1):
                rows = _answer(pipeline, batch, settings)
                file.write(b"".join(to_line(row) for row in rows))
                file.flush()
                os.fsync(file.fileno())
                done.append(rows)
                on_progress(sum(len(made) for made in batches[:number]))
    return [row for rows in done for row in rows]


def _answer(
    pipeline: Pipeline, batch: Sequence[EvalItem], settings: QaSettings
) -> list[dict[str, Any]]:
    questions = [item.question for item in batch]
    params = settings.params(pipeline)
    rows = []
    for branch in settings.branches:
        if branch == "never":
            answers = answer_closed_book(pipeline, questions, params)
        else:
            answers = answer_open_book(pipeline, questions, params, settings.k)
        rows += [_row(item, branch, made) for item, made in zip(batch, answers, strict=True)]
    return rows


def _row(item: EvalItem, branch: str, made: BatchAnswer) -> dict[str, Any]:
    return {
        "id": item.id,
        "mode": branch,
        "answer": made.answer.to_dict(),
        "passages": [
            {
                "id": found.passage.id,
                "document": found.passage.document,
                "score": round(found.score, 6),
                "text": found.passage.text,
            }
            for found in made.passages
        ],
        "signals": made.signals.to_dict() if made.signals else None,
        "lookup": LookupSignals.of(made.found).to_dict() if branch == "always" else None,
        "draft_ms": round(made.draft_ms, 3),
        "draft_tokens": made.draft_tokens,
    }


def _batches(items: Sequence[EvalItem], size: int) -> Iterator[Sequence[EvalItem]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _kept(
    file: Any, batches: Sequence[Sequence[EvalItem]], branches: Sequence[str]
) -> list[list[Any]]:
    """Reads the whole batches at the beginning of a file, and cuts off what comes behind them."""
    file.seek(0)
    lines = file.read().splitlines(keepends=True)
    done: list[list[Any]] = []
    end = place = 0
    for batch in batches:
        wanted = [(item.id, branch) for branch in branches for item in batch]
        part = lines[place : place + len(wanted)]
        rows = [row for row in map(read_line, part) if row is not None]
        if [(row.get("id"), row.get("mode")) for row in rows] != wanted:
            break
        done.append(rows)
        end += sum(map(len, part))
        place += len(wanted)
    file.truncate(end)
    file.seek(end)
    return done
