"""Prompts that a target shall answer, read from files, and those that it must never see."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specrag.errors import InputError
from specrag.training.lines import is_json_lines, read_lines, read_objects

_FIELDS = ("prompt", "question", "instruction", "input", "turns", "text")
"""The fields that hold a prompt in public sets; the first that a row has is taken."""


@dataclass(frozen=True, slots=True)
class TrainingPrompt:
    """One user message.

    Attributes:
        text: What it says.
        kind: Where it came from.
    """

    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class PromptChoice:
    """The prompts that are left when those that must not be used are taken away.

    Attributes:
        prompts: In their order.
        num_excluded: How many stand in an excluded file.
        num_repeated: How many say the same as an earlier one.
    """

    prompts: tuple[TrainingPrompt, ...]
    num_excluded: int
    num_repeated: int


def read_prompts(paths: Iterable[Path]) -> list[TrainingPrompt]:
    """Reads prompts: from JSON lines by the names of the fields, from other files one a line.

    Args:
        paths: The files, plain or packed; those with names in ``.jsonl`` hold JSON lines. A
            row's kind is its ``kind`` or ``category``, else the name of its file.

    Raises:
        InputError: A file cannot be read or has no prompts, or a row has none.
    """
    found: list[TrainingPrompt] = []
    for path in paths:
        kind = path.name.split(".")[0]
        before = len(found)
        if is_json_lines(path):
            for place, row in read_objects(path):
                found.append(TrainingPrompt(_prompts_of(row, place)[0], _kind_of(row, kind)))
        else:
            found += [TrainingPrompt(line.strip(), kind) for _, line in read_lines(path)]
        if len(found) == before:
            raise InputError(f"{str(path)!r} has no prompts", hint="give one a line")
    return found


def read_excluded(paths: Iterable[Path]) -> frozenset[str]:
    """Reads prompts that must not be used, later turns of conversations included.

    Args:
        paths: Files as ``read_prompts`` takes them.

    Returns:
        Each prompt ``normalised``.

    Raises:
        InputError: As ``read_prompts``.
    """
    found: set[str] = set()
    for path in paths:
        before = len(found)
        if is_json_lines(path):
            for place, row in read_objects(path):
                found.update(map(normalised, _prompts_of(row, place)))
        else:
            found.update(normalised(line) for _, line in read_lines(path))
        if len(found) == before:
            raise InputError(f"{str(path)!r} excludes no further prompt", hint="leave it out")
    return frozenset(found)


def normalised(text: str) -> str:
    """Returns a text in which runs of spaces and the case of letters no longer tell.

    Args:
        text: Any.
    """
    return " ".join(text.split()).casefold()


def choose(prompts: Sequence[TrainingPrompt], excluded: Collection[str]) -> PromptChoice:
    """Takes away prompts that are excluded or have come before.

    Args:
        prompts: Any.
        excluded: ``normalised`` prompts that must not be used.
    """
    kept = []
    seen: set[str] = set()
    num_excluded = num_repeated = 0
    for prompt in prompts:
        key = normalised(prompt.text)
        if key in excluded:
            num_excluded += 1
        elif key in seen:
            num_repeated += 1
        else:
            seen.add(key)
            kept.append(prompt)
    return PromptChoice(tuple(kept), num_excluded, num_repeated)


def _prompts_of(row: Mapping[str, Any], place: str) -> list[str]:
    name = next((name for name in _FIELDS if name in row), None)
    if name is None:
        raise InputError(
            f"{place} has no prompt, only {', '.join(row) or 'nothing'}",
            hint=f"a prompt stands in one of the fields {', '.join(_FIELDS)}",
        )
    values = row[name] if name == "turns" else [row[name]]
    good = isinstance(values, list) and bool(values)
    if not good or not all(isinstance(value, str) and value.strip() for value in values):
        allowed = "a list of texts" if name == "turns" else "a text, not blank"
        raise InputError(f"{place}: {name} must be {allowed}, got {row[name]!r:.80}")
    return [value.strip() for value in values]


def _kind_of(row: Mapping[str, Any], default: str) -> str:
    found = row.get("kind", row.get("category"))
    return found if isinstance(found, str) and found.strip() else default
