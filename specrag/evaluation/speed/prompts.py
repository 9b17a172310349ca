"""What speed is measured on: questions of evaluation sets, as the token ids that all arms get."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from specrag.errors import ConfigError, InputError, suggest
from specrag.evaluation.datasets.catalog import sample
from specrag.evaluation.datasets.item import EvalDataset, EvalItem
from specrag.evaluation.speed.tasks import task_of

By = Literal["group", "category"]
BY: tuple[By, ...] = ("group", "category")


@dataclass(frozen=True, slots=True)
class SpeedQuestion:
    """One question to decode an answer to.

    Attributes:
        id: Of its item; with several sets, behind the name of its set.
        category: Group that figures are reported for.
        task: Kind of work that acceptance is reported for, None for none.
        text: The first user turn.
    """

    id: str
    category: str
    task: str | None
    text: str


@dataclass(frozen=True, slots=True)
class SpeedPrompt:
    """One prompt, the same for every arm.

    Attributes:
        id: Of its question.
        category: Group that figures are reported for.
        task: Kind of work, None for none.
        token_ids: The question in the target's chat template.
    """

    id: str
    category: str
    task: str | None
    token_ids: tuple[int, ...]


def choose_questions(
    datasets: Sequence[EvalDataset],
    *,
    by: str = "group",
    categories: Sequence[str] = (),
    per_category: int | None = None,
    seed: int | None = None,
) -> list[SpeedQuestion]:
    """Picks the questions of a run.

    Args:
        datasets: Where they come from.
        by: ``group`` reports Spec-Bench by its six groups and any other set as one; ``category``
            reports the categories of the sets, such as the eight of MT-bench.
        categories: Groups or categories to keep; all of them if none is named. One that is named
            by its category is reported by it.
        per_category: Most questions of each; the first ones without a seed.
        seed: Draws the questions of each.

    Raises:
        ConfigError: ``by`` is unknown.
        InputError: A category is not there, or nothing is left.
    """
    if by not in BY:
        raise ConfigError(f"unknown way to group {by!r}; {suggest(by, BY)}")
    _check(categories, datasets)
    found: list[SpeedQuestion] = []
    for dataset in datasets:
        start = f"{dataset.name}:" if len(datasets) > 1 else ""
        for label, items in _labelled(dataset, by, categories).items():
            part = replace(dataset, items=tuple(items))
            if per_category is not None and seed is not None:
                part = sample(part, per_category, seed)
            found.extend(
                SpeedQuestion(f"{start}{item.id}", label, _task(dataset, item), item.question)
                for item in part.items[:per_category]
            )
    if not found:
        raise InputError("there is no question to decode", hint="give a set that holds some")
    return found


def encode_questions(
    questions: Sequence[SpeedQuestion],
    prompt_ids: Callable[[list[dict[str, str]]], list[int]],
    room: int,
) -> tuple[list[SpeedPrompt], list[str]]:
    """Turns questions into prompts, leaving out those that are too long.

    Args:
        questions: What is asked.
        prompt_ids: Puts messages into the target's chat template.
        room: Most tokens of a prompt, so that its answer still fits.

    Returns:
        The prompts, and the ids of the questions left out.

    Raises:
        InputError: All of them are too long.
    """
    prompts = [
        SpeedPrompt(
            question.id,
            question.category,
            question.task,
            tuple(prompt_ids([{"role": "user", "content": question.text}])),
        )
        for question in questions
    ]
    kept = [prompt for prompt in prompts if len(prompt.token_ids) <= room]
    if not kept:
        shortest = min(len(prompt.token_ids) for prompt in prompts)
        raise InputError(
            f"no prompt leaves room for the answer: the shortest has {shortest} tokens, and "
            f"{room} fit beside it",
            hint="ask for fewer --max-tokens, or measure a model with a longer context",
        )
    return kept, [prompt.id for prompt in prompts if len(prompt.token_ids) > room]


def _group(dataset: EvalDataset, item: EvalItem) -> str:
    return str(item.metadata.get("group") or dataset.name)


def _labelled(dataset: EvalDataset, by: str, wanted: Sequence[str]) -> dict[str, list[EvalItem]]:
    """Returns the items that are wanted by the category that reports them."""
    found: dict[str, list[EvalItem]] = {}
    for item in dataset.items:
        group = _group(dataset, item)
        category = item.category or group
        label = group if by == "group" else category
        if wanted and label not in wanted:
            if not {group, category} & set(wanted):
                continue
            label = category
        found.setdefault(label, []).append(item)
    return found


def _check(wanted: Sequence[str], datasets: Sequence[EvalDataset]) -> None:
    known = {
        name
        for dataset in datasets
        for item in dataset.items
        for name in (_group(dataset, item), item.category)
        if name
    }
    for name in wanted:
        if name not in known:
            sets = ", ".join(dataset.name for dataset in datasets)
            raise InputError(f"no category {name!r} in {sets}; {suggest(name, known)}")


def _task(dataset: EvalDataset, item: EvalItem) -> str | None:
    names = (item.category, _group(dataset, item), dataset.name, dataset.format)
    return task_of(names, dataset.task)
