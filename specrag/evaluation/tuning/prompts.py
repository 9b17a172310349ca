"""What tuning decodes: the user's own prompts, or a few of ours that say little about theirs."""

from __future__ import annotations

import hashlib
import random
import re
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from specrag.errors import InputError
from specrag.evaluation.datasets.catalog import load_dataset
from specrag.evaluation.datasets.files import read_file
from specrag.evaluation.speed.prompts import SpeedQuestion, choose_questions

BUILT_IN = (
    ("question", "Why is the sky blue during the day and red in the evening?"),
    ("code", "Write a Python function that tells whether a word is a palindrome, with tests."),
    ("maths", "A train leaves at 9:40 and arrives at 12:05. It stops twice for 6 minutes. How "
     "long does it move? Explain step by step."),
    ("writing", "Write a short letter to a neighbour who has watered the plants for two weeks."),
    ("summary", "Summarise in three sentences: The harbour of the town was built in 1820 for "
     "fishing boats. When the railway came in 1861, coal was loaded there, and the harbour was "
     "made deeper twice. Coal ended in 1954. Today the harbour is used by sailing boats, and the "
     "old coal store is a museum that shows how the harbour of the town was built."),
    ("rewriting", "Repeat this list with each line in capital letters:\n- two loaves of bread\n"
     "- one pound of butter\n- six eggs\n- a bag of flour\n- one litre of milk"),
    ("question", "What is the difference between a virus and a bacterium?"),
    ("code", "Correct this function and show it whole:\ndef mean(values):\n    total = 0\n    "
     "for value in values:\n        total = value\n    return total / len(value)"),
)  # fmt: skip
"""Kind and text."""

_PLAIN_ENDINGS = (".txt", ".md", ".text")


@dataclass(frozen=True, slots=True)
class PromptSource:
    """The prompts of a run.

    Attributes:
        name: Where they come from, for the report.
        sha256: Of the bytes that were read, or of our own prompts.
        questions: The prompts, kinds taken in turn.
        built_in: Whether they are ours.
    """

    name: str
    sha256: str
    questions: tuple[SpeedQuestion, ...]
    built_in: bool = False


def read_prompts(
    source: str | None, *, format: str = "auto", count: int = 12, seed: int | None = None
) -> PromptSource:
    """Reads the prompts to tune on.

    Args:
        source: A file of plain text with a prompt a line, or with blank lines between prompts of
            several lines; any evaluation set; or None for our own.
        format: Of an evaluation set.
        count: Most prompts.
        seed: Draws them; without it the first of each kind are taken.

    Raises:
        ConfigError: The format is unknown.
        InputError: It cannot be read, or holds fewer than two prompts.
    """
    if source is None:
        digest = hashlib.sha256(repr(BUILT_IN).encode()).hexdigest()
        questions = [
            SpeedQuestion(f"built-in-{number}", kind, None, text)
            for number, (kind, text) in enumerate(BUILT_IN, 1)
        ]
        return PromptSource("built-in prompts", digest, tuple(questions[:count]), built_in=True)
    path = Path(source).expanduser()
    if format == "auto" and path.suffix.lower() in _PLAIN_ENDINGS and not path.is_dir():
        file = read_file(path)
        questions = _of_text(file.text, path.stem)
        if seed is not None:
            questions = random.Random(seed).sample(questions, len(questions))
        digest = file.sha256
    else:
        dataset = load_dataset(source, format)
        questions = choose_questions([dataset], by="category", per_category=count, seed=seed)
        digest = dataset.sha256
    if len(questions) < 2:
        raise InputError(
            f"{source!r} holds one prompt, and one says nothing about others",
            hint="give at least two; ten or more give narrow intervals",
        )
    return PromptSource(source, digest, tuple(_in_turn(questions)[:count]))


def split_text(text: str) -> list[str]:
    """Splits plain text into prompts: at blank lines if there are any, else at every line.

    Args:
        text: Of a file.
    """
    lines = text.replace("\r\n", "\n").strip("\n")
    parts = (
        re.split(r"\n[ \t]*\n\s*?", lines)
        if re.search(r"\n[ \t]*\n", lines)
        else (lines.split("\n"))
    )
    return [part.strip() for part in parts if part.strip()]


def _of_text(text: str, name: str) -> list[SpeedQuestion]:
    return [
        SpeedQuestion(f"{name}-{number}", name, None, part)
        for number, part in enumerate(split_text(text), 1)
    ]


def _in_turn(questions: list[SpeedQuestion]) -> list[SpeedQuestion]:
    """Takes one of each kind in turn, so that the first few are of all kinds."""
    kinds: dict[str, list[SpeedQuestion]] = {}
    for question in questions:
        kinds.setdefault(question.category, []).append(question)
    turns = chain.from_iterable(zip_longest(*kinds.values()))
    return [question for question in turns if question is not None]
