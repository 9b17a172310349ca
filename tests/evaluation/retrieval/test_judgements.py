"""What counts as relevant, and sets that say nothing about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specrag.errors import ConfigError, InputError
from specrag.evaluation.datasets.item import EvalItem
from specrag.evaluation.retrieval.judgements import (
    has_several,
    judged,
    left_out,
    num_absent,
    num_judgements,
    relevance,
)
from tests.evaluation.retrieval.found import dataset


def test_documents_without_grades_count_one() -> None:
    assert relevance(EvalItem("1", "q", documents=("a", "b"))) == {"a": 1.0, "b": 1.0}
    graded = EvalItem("1", "q", documents=("a", "b"), grades={"a": 4.0})
    assert relevance(graded) == {"a": 4.0, "b": 1.0}


def test_questions_without_relevant_documents_are_left_out_and_counted() -> None:
    made = dataset({"one": {"a": 1.0}, "two": {}, "three": {"a": 2.0, "b": 1.0}})
    kept = judged(made)
    assert [item.question for item in kept.items] == ["one", "three"]
    assert left_out(made) == ["left out 1 questions without a relevant document"]
    assert left_out(kept) == []
    assert num_judgements(kept) == 3
    assert has_several(kept)
    assert not has_several(replace(kept, items=kept.items[:1]))


def test_a_set_that_judges_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="does not say which documents answer"):
        judged(dataset({"one": {}}))


def test_relevant_documents_that_are_not_indexed_are_counted() -> None:
    made = dataset({"one": {"a": 1.0}, "two": {"a": 1.0, "b": 1.0}})
    assert num_absent(made, ["a", "b", "c"]) == 0
    assert num_absent(made, {"b"}) == 1
    with pytest.raises(ConfigError, match="none of the 2 relevant documents .* such as 'a'"):
        num_absent(made, ["c"])
