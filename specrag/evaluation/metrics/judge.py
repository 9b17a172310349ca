"""The measures of one answer, by the way that its set is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from specrag.evaluation.datasets.item import EvalItem, Task
from specrag.evaluation.metrics.abstention import abstains
from specrag.evaluation.metrics.code import extract_code, passes
from specrag.evaluation.metrics.texts import (
    chosen,
    contains,
    exact_match,
    last_number,
    token_f1,
)

MEASURES = ("exact_match", "f1", "contains", "abstained")
_Scores = dict[str, float | None]


def headline(task: Task) -> str:
    """Returns the measure that counts as accuracy.

    Args:
        task: How the set is judged.
    """
    return "contains" if task == "short_answer" else "exact_match"


def judged(
    task: Task, item: EvalItem, response: str, *, run_code: bool = False
) -> Mapping[str, float | None]:
    """Measures one answer.

    Args:
        task: How the set is judged.
        item: The question.
        response: The answer.
        run_code: Whether an answer that is a program is run, with the tests of its question.

    Returns:
        All of ``MEASURES``; None for those that have no meaning here.
    """
    scores: _Scores = dict.fromkeys(MEASURES)
    scores["abstained"] = float(abstains(response))
    if task == "code":
        scores["exact_match"] = _passes(item, response) if run_code else None
    elif item.answers and task in _JUDGES:
        scores |= _JUDGES[task](item, response)
    return scores


def _short(item: EvalItem, response: str) -> _Scores:
    return {
        "exact_match": exact_match(response, item.answers),
        "f1": token_f1(response, item.answers),
        "contains": contains(response, item.answers),
    }


def _choice(item: EvalItem, response: str) -> _Scores:
    return {"exact_match": float(chosen(response, item.choices) in item.answers)}


def _number(item: EvalItem, response: str) -> _Scores:
    said = last_number(response)
    return {
        "exact_match": float(
            said is not None and any(said == last_number(answer) for answer in item.answers)
        )
    }


def _passes(item: EvalItem, response: str) -> float | None:
    if not item.metadata.get("test"):
        return None
    facts = {name: str(item.metadata.get(name, "")) for name in ("prompt", "test", "entry_point")}
    program = extract_code(response, facts["prompt"])
    return float(passes(program, facts["test"], facts["entry_point"]))


_JUDGES: Mapping[Task, Callable[[EvalItem, str], _Scores]] = {
    "short_answer": _short,
    "choice": _choice,
    "number": _number,
}
