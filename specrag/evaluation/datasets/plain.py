"""Any rows with a question and an answer, and what their columns are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specrag.errors import ConfigError, InputError, suggest
from specrag.evaluation.datasets.draft import Draft, label
from specrag.evaluation.datasets.files import Row, texts

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "question": ("question", "query", "prompt", "input", "user_input", "instruction", "text"),
    "answers": (
        "answers",
        "answer",
        "gold",
        "target",
        "reference",
        "references",
        "output",
        "ground_truth",
    ),
    "id": ("id", "_id", "question_id", "qid"),
    "category": ("category", "type", "kind"),
    "context": ("context", "passage", "document"),
}
"""What a column map may name, and the names that are tried without one."""


def read_plain(draft: Draft, rows: Sequence[Row], columns: Mapping[str, str] | None = None) -> None:
    """Reads rows of questions.

    Args:
        draft: Takes the questions, and their contexts as documents.
        rows: As read from lines, a list or a table.
        columns: Which column holds what; see ``COLUMNS``.

    Raises:
        ConfigError: The map names what is not there.
        InputError: A row has no question.
    """
    names = chosen_columns(rows, columns or {})
    if "question" not in names:
        raise InputError(
            f"no column of {draft.source!r} looks like a question: {', '.join(rows[0])}",
            hint="say which one is: --column question=NAME",
        )
    for number, row in enumerate(rows, 1):
        where = draft.where(number)
        value = {key: row.get(name) for key, name in names.items()}
        places = [draft.document("", text) for text in _contexts(value.get("context"))]
        draft.add(
            number,
            value.get("id"),
            value["question"],
            answers=texts(value.get("answers"), where, names.get("answers", "answers")),
            category=label(value, "category", where),
            documents=tuple(dict.fromkeys(place for place in places if place is not None)),
        )


def _contexts(value: Any) -> Sequence[str]:
    """Returns the texts of a context; other shapes of other sets are passed over."""
    if isinstance(value, str):
        return (value,)
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else ()


def chosen_columns(rows: Sequence[Row], columns: Mapping[str, str]) -> dict[str, str]:
    """Returns the column of each part of a question.

    Args:
        rows: The first one's columns count.
        columns: What the user says; the rest is guessed.

    Raises:
        ConfigError: A part is unknown, or a column is not there.
    """
    present = list(rows[0])
    for key, name in columns.items():
        if key not in COLUMNS:
            raise ConfigError(f"a column map has no {key!r}; {suggest(key, COLUMNS)}")
        if name not in present:
            raise ConfigError(f"there is no column {name!r}; {suggest(name, present)}")
    guessed = {
        key: next((name for name in usual if name in present), None)
        for key, usual in COLUMNS.items()
    }
    return {**{key: name for key, name in guessed.items() if name}, **columns}
