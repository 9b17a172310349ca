from __future__ import annotations

from typing import get_args

import pytest

from specrag.evaluation.datasets.catalog import ROW_FORMATS
from specrag.evaluation.datasets.item import Task
from specrag.evaluation.datasets.reasoning import SPEC_BENCH
from specrag.evaluation.speed.tasks import TASKS, USUAL, task_of

MT_BENCH = (
    "writing",
    "roleplay",
    "reasoning",
    "math",
    "coding",
    "extraction",
    "stem",
    "humanities",
)


def test_every_task_has_its_usual_range_and_something_to_measure_it_on() -> None:
    assert set(USUAL) == {task for task in TASKS.values() if task}
    assert all(0 < low < high < 1 for low, high in USUAL.values())


@pytest.mark.parametrize("name", [*SPEC_BENCH, *MT_BENCH])
def test_every_category_of_spec_bench_is_decided(name: str) -> None:
    assert name in TASKS


@pytest.mark.parametrize("name", sorted(set(ROW_FORMATS) - {"spec_bench"}))
def test_every_format_is_decided_by_name_or_by_judgement(name: str) -> None:
    assert task_of([name], ROW_FORMATS[name].task) in USUAL


def test_every_way_to_judge_but_open_tells_a_task() -> None:
    told = {judged: task_of(["of mine"], judged) for judged in get_args(Task)}
    assert told.pop("open") is None
    assert all(task in USUAL for task in told.values())


@pytest.mark.parametrize(
    ("names", "task"),
    [
        (("coding", "mt_bench"), "code"),
        (("HumanEval",), "code"),
        (("", "my_file", "gsm8k"), "maths"),
        (("summarization", "qa"), None),  # the nearest name decides, also for none
    ],
)
def test_the_first_known_name_decides(names: tuple[str, ...], task: str | None) -> None:
    assert task_of(names, "choice") == task
