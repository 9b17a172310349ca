"""Formats of evaluation sets: told apart by their content, read by one function each."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specrag.errors import ConfigError, InputError, suggest
from specrag.evaluation.datasets.draft import Draft, field, label
from specrag.evaluation.datasets.files import RawFile, Row, Rows, json_of, read_file, rows_of
from specrag.evaluation.datasets.folders import (
    is_beir,
    is_cranfield,
    read_beir,
    read_cranfield,
)
from specrag.evaluation.datasets.hub import PREFIX, read_hub
from specrag.evaluation.datasets.item import EvalDataset, EvalItem, Task
from specrag.evaluation.datasets.open_domain import (
    read_hotpotqa,
    read_nq_open,
    read_popqa,
    read_pubmedqa,
    read_squad,
    read_squad_rows,
)
from specrag.evaluation.datasets.plain import read_plain
from specrag.evaluation.datasets.reasoning import (
    read_gsm8k,
    read_humaneval,
    read_mbpp,
    read_spec_bench,
)
from specrag.retrieval.document import Document
from specrag.retrieval.sources.catalog import load_folder

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RowFormat:
    """A format whose file is a row a question.

    Attributes:
        fits: Tells it by the first row.
        read: Reads the rows into a draft.
        task: How answers are judged.
        help: One line.
    """

    fits: Callable[[Row], bool]
    read: Callable[[Draft, Sequence[Row]], None]
    task: Task
    help: str


def _has(*names: str) -> Callable[[Row], bool]:
    return lambda row: all(name in row for name in names)


def _is_gsm8k(row: Row) -> bool:
    return isinstance(row.get("answer"), str) and "####" in row["answer"] and "question" in row


def _is_squad_row(row: Row) -> bool:
    return isinstance(row.get("answers"), Mapping) and "context" in row and "question" in row


def _is_nq_open(row: Row) -> bool:
    return isinstance(row.get("answer"), list) and "question" in row and "context" not in row


# Told apart in this order.
ROW_FORMATS: Mapping[str, RowFormat] = {
    "popqa": RowFormat(
        _has("question", "possible_answers", "s_pop"), read_popqa, "short_answer",
        "PopQA, the original table or JSON with passages",
    ),
    "humaneval": RowFormat(
        _has("task_id", "prompt", "entry_point", "test"), read_humaneval, "code", "HumanEval"
    ),
    "mbpp": RowFormat(_has("input", "test", "language"), read_mbpp, "code", "MBPP"),
    "spec_bench": RowFormat(
        _has("question_id", "category", "turns"), read_spec_bench, "open", "Spec-Bench, MT-bench"
    ),
    "hotpotqa": RowFormat(
        _has("question", "answer", "context", "supporting_facts"), read_hotpotqa, "short_answer",
        "HotpotQA, 2WikiMultihopQA",
    ),
    "squad_rows": RowFormat(
        _is_squad_row, read_squad_rows, "short_answer", "SQuAD as the hub has it"
    ),
    "gsm8k": RowFormat(_is_gsm8k, read_gsm8k, "number", "GSM8K"),
    "nq_open": RowFormat(_is_nq_open, read_nq_open, "short_answer", "NQ-open"),
}  # fmt: skip
FORMATS: Mapping[str, str] = {
    "squad": "SQuAD 1.1 and 2.0, XQuAD",
    "pubmedqa": "PubMedQA, yes, no or maybe",
    **{name: known.help for name, known in ROW_FORMATS.items()},
    "beir": "a folder of corpus.jsonl, queries.jsonl and qrels/",
    "cranfield": "a folder of cran.all.1400, cran.qry and cranqrel",
    "plain": "JSON, JSON lines or a table with a question and an answer",
}
"""Name and one line of help."""
PLAIN_NAMES = ("csv", "json", "jsonl", "tsv")
"""Other names of ``plain``; what the cells are parted by is told by the content."""
_SPLIT_FORMATS = ("beir", "pubmedqa")


def load_dataset(
    source: str,
    format: str = "auto",
    columns: Mapping[str, str] | None = None,
    split: str = "",
) -> EvalDataset:
    """Reads an evaluation set.

    Args:
        source: A file, a folder, or ``hub:NAME`` with the optional ``datasets`` library.
        format: A name of ``FORMATS`` or ``PLAIN_NAMES``; ``auto`` tells it by the content.
        columns: For plain rows: which column is ``question``, ``answers``, ``id``, ``category``,
            ``context``.
        split: Where a set has several: on the hub, PubMedQA and folders as BEIR has them.

    Raises:
        ConfigError: The format or a column is unknown, or the format has no columns or splits.
        InputError: It cannot be read as this format; the message names file and entry.
    """
    chosen = _chosen_format(format, columns)
    if source.startswith(PREFIX):
        name, rows, digest = read_hub(source, split)
        chosen = "squad_rows" if chosen == "squad" else chosen
        return _of_rows(source, rows, chosen, columns, name, digest)
    path = Path(source).expanduser()
    made = (
        _of_folder(path, chosen, split) if path.is_dir() else _of_file(path, chosen, columns, split)
    )
    if split and made.format not in _SPLIT_FORMATS:
        raise ConfigError(
            f"{source!r} is of the format {made.format}, which has no split {split!r}"
        )
    return made


def _chosen_format(name: str, columns: Mapping[str, str] | None) -> str:
    known = ("auto", *FORMATS, *PLAIN_NAMES)
    if name not in known:
        raise ConfigError(f"unknown format {name!r}; {suggest(name, known)}")
    chosen = "plain" if name in PLAIN_NAMES else name
    if columns and chosen not in ("auto", "plain"):
        raise ConfigError(f"the format {name} knows its columns", hint="map columns of plain sets")
    return "plain" if columns else chosen


def _of_file(path: Path, format: str, columns: Mapping[str, str] | None, split: str) -> EvalDataset:
    file = read_file(path)
    draft = Draft(str(path))
    content = _document(file) if format in ("auto", "squad", "pubmedqa") else None
    if content is not None and (format == "squad" or _is_squad(content)):
        read_squad(draft, content)
        return draft.finish(file.stem, "squad", file.sha256, "short_answer")
    if content is not None and (format == "pubmedqa" or _is_pubmedqa(content)):
        read_pubmedqa(draft, content, split)
        return draft.finish(_named(file.stem, split), "pubmedqa", file.sha256, "choice")
    if format in ("squad", "pubmedqa"):
        raise InputError(f"{str(path)!r} is not of the format {format}: it is no JSON object")
    return _of_rows(str(path), rows_of(file), format, columns, file.stem, file.sha256)


def sample(
    dataset: EvalDataset,
    count: int | None = None,
    seed: int = 0,
    per_category: int | None = None,
) -> EvalDataset:
    """Returns a set with fewer questions, drawn without replacement, in the order of the file.

    Args:
        dataset: The whole set; its documents stay whole.
        count: Most questions; None keeps all.
        seed: Of the draw.
        per_category: Most questions of each category.

    Raises:
        ConfigError: A number is below 1.
    """
    for name, value in (("count", count), ("per_category", per_category)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}")
    order = list(range(len(dataset.items)))
    random.Random(seed).shuffle(order)
    if per_category is not None:
        order = _first_of_each(dataset.items, order, per_category)
    kept = sorted(order[:count])
    return replace(dataset, items=tuple(dataset.items[place] for place in kept))


def load_documents(source: str) -> tuple[Document, ...]:
    """Reads documents to ask: those of an evaluation set, rows of titles and texts, or text files.

    Documents without text are left out.

    Args:
        source: A file, a folder or ``hub:NAME``.

    Raises:
        InputError: There is no document in it.
    """
    path = Path(source).expanduser()
    is_folder = path.is_dir() and not is_beir(path) and not is_cranfield(path)
    if is_folder or path.suffix.lower() in (".md", ".markdown", ".rst", ".txt"):
        return _text_files(path)
    rows = None if source.startswith(PREFIX) or path.is_dir() else rows_of(read_file(path))
    if rows is None or not _is_corpus(rows.values[0]):
        documents = load_dataset(source).documents
    else:
        draft = Draft(source)
        for where, row in rows.placed():
            draft.document(label(row, "title", where), field(row, "text", where))
        documents = draft.documents
    if not documents:
        raise InputError(f"{source!r} has no documents")
    return documents


def _text_files(path: Path) -> tuple[Document, ...]:
    loaded = load_folder(path)
    if not loaded.documents:
        first = loaded.failures[0]
        raise InputError(f"{str(path)!r} has no documents: {str(first.path)!r} {first.reason}")
    for failure in loaded.failures:
        _LOG.warning("left out %s", failure)
    return loaded.documents


def _is_corpus(row: Row) -> bool:
    return "text" in row and "title" in row and "question" not in row


def _of_folder(path: Path, format_name: str, split: str) -> EvalDataset:
    draft = Draft(str(path))
    if format_name == "cranfield" or (format_name == "auto" and is_cranfield(path)):
        return draft.finish(path.name, "cranfield", read_cranfield(draft, path), "open")
    if format_name == "beir" or (format_name == "auto" and is_beir(path)):
        digest = read_beir(draft, path, split)
        return draft.finish(_named(path.name, split), "beir", digest, "open")
    raise InputError(
        f"the folder {str(path)!r} is no evaluation set",
        hint="known folders hold corpus.jsonl and queries.jsonl, or the Cranfield files",
    )


def _of_rows(
    source: str,
    rows: Rows,
    format_name: str,
    columns: Mapping[str, str] | None,
    name: str,
    sha256: str,
) -> EvalDataset:
    chosen = format_name
    draft = Draft(source, rows.places)
    if chosen == "auto":
        fitting = (key for key, known in ROW_FORMATS.items() if known.fits(rows.values[0]))
        chosen = next(fitting, "plain")
    if chosen in ROW_FORMATS:
        known = ROW_FORMATS[chosen]
        known.read(draft, rows.values)
        return draft.finish(name, chosen, sha256, known.task)
    if chosen != "plain":
        raise InputError(f"{source!r} has rows, and the format {chosen} has none")
    read_plain(draft, rows.values, columns)
    made = draft.finish(name, "plain", sha256, "short_answer")
    return made if any(item.answers for item in made.items) else replace(made, task="open")


def _document(file: RawFile) -> Mapping[str, Any] | None:
    """Returns the content of a file that is one JSON object, else None."""
    if not file.text.lstrip().startswith("{"):
        return None
    try:
        content = json_of(file)
    except InputError:
        return None  # lines, perhaps
    return content if isinstance(content, Mapping) else None


def _is_squad(content: Mapping[str, Any]) -> bool:
    return isinstance(content.get("data"), list)


def _is_pubmedqa(content: Mapping[str, Any]) -> bool:
    first = next(iter(content.values()), None)
    return isinstance(first, Mapping) and "final_decision" in first and "CONTEXTS" in first


def _named(name: str, split: str) -> str:
    return f"{name}.{split}" if split else name


def _first_of_each(items: Sequence[EvalItem], order: Sequence[int], most: int) -> list[int]:
    taken: dict[str, int] = {}
    kept = []
    for place in order:
        category = items[place].category
        taken[category] = taken.get(category, 0) + 1
        if taken[category] <= most:
            kept.append(place)
    return kept
