"""The measures of one answer, by task."""

from __future__ import annotations

from typing import get_args

import pytest

from specrag.evaluation.datasets.item import EvalItem, Task
from specrag.evaluation.metrics.judge import MEASURES, headline, judged

TASKS: tuple[Task, ...] = get_args(Task)
CHECK = "def check(candidate):\n    assert candidate(2) == 4\n"
PROGRAM = "```python\ndef double(x):\n    return 2 * x\n```"


def item(
    *answers: str, choices: tuple[str, ...] = (), metadata: dict[str, str | float] | None = None
) -> EvalItem:
    return EvalItem("1", "?", answers, choices=choices, metadata=metadata or {})


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("response", ["", "Paris", "I do not know.", "12"])
@pytest.mark.parametrize("answers", [(), ("Paris",), ("12", "Rome")])
def test_the_measures_are_always_the_same(
    task: Task, response: str, answers: tuple[str, ...]
) -> None:
    scores = judged(task, item(*answers, choices=("Paris", "Rome")), response)
    assert tuple(scores) == MEASURES
    assert scores["abstained"] is not None
    assert headline(task) in MEASURES
    if not answers or task in ("open", "code"):
        assert [scores[name] for name in MEASURES[:3]] == [None, None, None]
    else:
        assert scores[headline(task)] is not None
    assert all(value is None or 0 <= value <= 1 for value in scores.values())


def test_accuracy_is_fair_to_sentences_only_where_answers_are_texts() -> None:
    assert headline("short_answer") == "contains"
    assert headline("choice") == headline("number") == headline("code") == "exact_match"


def test_short_answers() -> None:
    scores = judged("short_answer", item("Paris", "City of Light"), "It is Paris.")
    assert scores == {"exact_match": 0, "f1": 0.5, "contains": 1, "abstained": 0}
    assert judged("short_answer", item("Paris"), "the PARIS!")["exact_match"] == 1


@pytest.mark.parametrize(
    ("response", "expected"), [("Yes, because ...", 1), ("No.", 0), ("Perhaps", 0), ("", 0)]
)
def test_choices(response: str, expected: int) -> None:
    scores = judged("choice", item("yes", choices=("yes", "no", "maybe")), response)
    assert scores["exact_match"] == expected
    assert scores["f1"] is scores["contains"] is None


@pytest.mark.parametrize(
    ("answer", "response", "expected"),
    [
        ("18", "... so 9 * 2 = $18.00.", 1),
        ("1,234", "1234", 1),
        ("1234", "It is 1,234", 1),
        ("234", "It is 1,234", 0),  # the tail of a number is another number
        ("-3", "10-3", 0),
        ("18", "18 eggs, and 2 left", 0),
        ("18", "eighteen", 0),
    ],
)
def test_numbers(answer: str, response: str, expected: int) -> None:
    assert judged("number", item(answer), response)["exact_match"] == expected


def test_an_answer_without_a_number_is_never_right() -> None:
    assert judged("number", item("none"), "nothing")["exact_match"] == 0


def test_programs_run_only_on_wish_and_with_a_test() -> None:
    facts: dict[str, str | float] = {"prompt": "", "test": CHECK, "entry_point": "double"}
    asked = item(metadata=facts)
    assert judged("code", asked, PROGRAM)["exact_match"] is None
    assert judged("code", asked, PROGRAM, run_code=True)["exact_match"] == 1
    wrong = PROGRAM.replace("2 *", "3 *")
    assert judged("code", asked, wrong, run_code=True)["exact_match"] == 0
    assert judged("code", item(), PROGRAM, run_code=True)["exact_match"] is None


def test_abstaining_is_told_beside_the_score() -> None:
    scores = judged("short_answer", item("Paris"), "I don't know, perhaps Paris.")
    assert (scores["abstained"], scores["contains"]) == (1, 1)
