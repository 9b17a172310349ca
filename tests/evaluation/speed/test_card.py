from __future__ import annotations

from typing import Any

import pytest

from specrag.errors import ConfigError, InputError
from specrag.evaluation.reports.report import Report
from specrag.evaluation.speed.card import measured


def row(category: str, drafter: str, length: float) -> dict[str, Any]:
    return {
        "category": category,
        "drafter": drafter,
        "num_prompts": 3,
        "num_tokens": 90,
        "mean_acceptance_length": length,
        "acceptance_by_depth": [0.5, 0.25],
        "speedup": 1.5,
        "prompts": ["much that no card needs"],
    }


def report(*drafters: str, kind: Any = "speed") -> Report:
    rows = [
        row(category, name, 1.0 + place)
        for category in ("rag", "all")
        for place, name in enumerate(("none", *drafters))
    ]
    settings = {"datasets": [{"name": "questions"}], "max_tokens": 64, "temperature": 1.0}
    return Report(kind, "A title", settings, {"results": rows}, command="specrag bench ...")


def test_a_card_tells_what_was_measured_of_one_drafter() -> None:
    found = measured(report("eagle3:x", "suffix"), "suffix")
    assert (found["sets"], found["max_tokens"], found["temperature"]) == (["questions"], 64, 1.0)
    assert found["command"] == "specrag bench ..."
    assert list(found["categories"]) == ["rag", "all"]
    assert found["categories"]["rag"]["mean_acceptance_length"] == 3.0
    assert "prompts" not in found["categories"]["rag"]
    assert measured(report("eagle3:x"))["drafter"] == "eagle3:x"


@pytest.mark.parametrize(
    ("found", "drafter", "said"),
    [
        (report("a", "b"), "", "the report measures 2 drafters: a, b"),
        (report("eagle3"), "eagel3", "no drafter 'eagel3'; did you mean 'eagle3'"),
        (report(), "", "the report has no drafter ''"),
    ],
)
def test_a_drafter_that_is_not_told_apart_is_refused(
    found: Report, drafter: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        measured(found, drafter)


def test_a_report_of_another_kind_is_refused() -> None:
    with pytest.raises(InputError, match="a report of qa, not of speed"):
        measured(report("a", kind="qa"))
