"""Prompts to measure decoding on: Spec-Bench's file format, and plain JSON lines like it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specrag.errors import InputError, suggest

SPEC_BENCH = ("mt_bench", "translation", "summarization", "qa", "math_reasoning", "rag")
"""Its categories; the eight sub-categories of MT-bench count as one."""


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """One prompt.

    Attributes:
        id: Of the question in its file.
        category: Group that figures are reported for.
        text: The first user turn.
    """

    id: str
    category: str
    text: str


def load_prompts(
    path: Path, categories: Sequence[str] = (), per_category: int | None = None
) -> list[BenchPrompt]:
    """Reads prompts from JSON lines with ``question_id``, ``category`` and ``turns``.

    Args:
        path: The file.
        categories: Those to keep; all of them if none is named.
        per_category: Most prompts of each, the first ones.

    Raises:
        InputError: The file is missing or not of this format, or a category is not in it.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(f"cannot read the questions {str(path)!r}: {error}") from error
    prompts = [_prompt(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    known = sorted({prompt.category for prompt in prompts})
    for category in categories:
        if category not in known:
            raise InputError(f"no category {category!r} in {path.name}; {suggest(category, known)}")
    kept: list[BenchPrompt] = []
    for category in categories or known:
        of_category = [prompt for prompt in prompts if prompt.category == category]
        kept.extend(of_category[:per_category])
    return kept


def _prompt(path: Path, number: int, line: str) -> BenchPrompt:
    try:
        row = json.loads(line)
        category = str(row["category"])
        return BenchPrompt(
            str(row["question_id"]),
            category if category in SPEC_BENCH[1:] else SPEC_BENCH[0],
            str(row["turns"][0]),
        )
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise InputError(
            f"line {number} of {str(path)!r} is not a question: {type(error).__name__} {error}",
            hint="each line is JSON with question_id, category and turns",
        ) from error
