"""Which questions are measured, and what they are reported as."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specrag.errors import ConfigError, InputError
from specrag.evaluation.datasets.catalog import load_dataset
from specrag.evaluation.datasets.item import EvalDataset, EvalItem
from specrag.evaluation.speed.prompts import SpeedQuestion, choose_questions, encode_questions

KINDS = ["writing", "coding", "rag", "rag", "writing", "rag", "qa", "coding"]


@pytest.fixture
def spec_bench(tmp_path: Path) -> EvalDataset:
    """A file in Spec-Bench's format, read as it is for a run."""
    path = tmp_path / "question.jsonl"
    rows = [
        {"question_id": 80 + i, "category": kind, "turns": [f"{kind} {i}", "And?"]}
        for i, kind in enumerate(KINDS)
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return load_dataset(str(path))


CODE = EvalDataset(
    "HumanEval", "humaneval", "", "", "code",
    tuple(EvalItem(str(i), f"def f{i}():", category="code") for i in range(81, 84)),
)  # fmt: skip


def labels(found: list[SpeedQuestion]) -> list[tuple[str, str]]:
    return [(question.id, question.category) for question in found]


def test_spec_bench_is_reported_by_its_groups(spec_bench: EvalDataset) -> None:
    found = choose_questions([spec_bench])
    assert labels(found) == [
        *((str(80 + i), "mt_bench") for i in (0, 1, 4, 7)),
        *((str(80 + i), "rag") for i in (2, 3, 5)),
        ("86", "qa"),
    ]
    assert found[0].text == "writing 0"  # the first turn only


def test_mt_bench_can_be_reported_by_its_categories(spec_bench: EvalDataset) -> None:
    found = choose_questions([spec_bench], by="category", per_category=1)
    assert labels(found) == [("80", "writing"), ("81", "coding"), ("82", "rag"), ("86", "qa")]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (["rag"], {"82": "rag", "83": "rag", "85": "rag"}),
        (["coding"], {"81": "coding", "87": "coding"}),
        (["mt_bench"], {str(80 + i): "mt_bench" for i in (0, 1, 4, 7)}),
        (["qa", "coding"], {"81": "coding", "86": "qa", "87": "coding"}),
    ],
)
def test_categories_are_named_by_group_or_by_category(
    wanted: list[str], expected: dict[str, str], spec_bench: EvalDataset
) -> None:
    assert dict(sorted(labels(choose_questions([spec_bench], categories=wanted)))) == expected


def test_a_group_is_named_among_categories(spec_bench: EvalDataset) -> None:
    found = choose_questions([spec_bench], by="category", categories=["mt_bench"])
    assert {question.category for question in found} == {"writing", "coding"}


def test_without_a_seed_the_first_are_taken(spec_bench: EvalDataset) -> None:
    found = choose_questions([spec_bench], per_category=2)
    assert [question.id for question in found] == ["80", "81", "82", "83", "86"]


def test_a_seed_draws_of_each_category_as_many(spec_bench: EvalDataset) -> None:
    drawn = {
        seed: tuple(
            question.id for question in choose_questions([spec_bench], per_category=2, seed=seed)
        )
        for seed in range(12)
    }
    assert all(len(ids) == len(set(ids)) == 5 for ids in drawn.values())
    assert len(set(drawn.values())) > 3
    again = choose_questions([spec_bench], per_category=2, seed=3)
    assert tuple(question.id for question in again) == drawn[3]


def test_other_sets_are_one_category_each_and_ids_tell_the_set(spec_bench: EvalDataset) -> None:
    found = choose_questions([spec_bench, CODE], per_category=1)
    assert labels(found) == [
        ("question:80", "mt_bench"),
        ("question:82", "rag"),
        ("question:86", "qa"),
        ("HumanEval:81", "HumanEval"),
    ]


def test_the_task_is_told_by_the_nearest_name(spec_bench: EvalDataset) -> None:
    tasks = {question.text: question.task for question in choose_questions([spec_bench, CODE])}
    assert tasks["coding 1"] == tasks["def f81():"] == "code"
    assert tasks["rag 2"] == tasks["qa 6"] == "question answering"
    assert tasks["writing 0"] == "creative writing"


def test_an_unknown_category_suggests_the_nearest(spec_bench: EvalDataset) -> None:
    with pytest.raises(InputError, match="no category 'codng' in question; did you mean 'coding'"):
        choose_questions([spec_bench], categories=["rag", "codng"])


def test_an_unknown_way_to_group_is_refused(spec_bench: EvalDataset) -> None:
    with pytest.raises(ConfigError, match="did you mean 'category'"):
        choose_questions([spec_bench], by="categories")


def encode(messages: list[dict[str, str]]) -> list[int]:
    assert [message["role"] for message in messages] == ["user"]
    return list(range(len(messages[0]["content"])))


def question(text: str) -> SpeedQuestion:
    return SpeedQuestion(text, "x", "code", text)


def test_prompts_that_leave_no_room_are_left_out_and_named() -> None:
    found, left_out = encode_questions([question("a" * n) for n in (2, 5, 4)], encode, 4)
    assert [(prompt.id, prompt.token_ids) for prompt in found] == [
        ("aa", (0, 1)),
        ("aaaa", (0, 1, 2, 3)),
    ]
    assert {(prompt.category, prompt.task) for prompt in found} == {("x", "code")}
    assert left_out == ["aaaaa"]


def test_no_prompt_at_all_is_an_error() -> None:
    with pytest.raises(InputError, match="the shortest has 5 tokens, and 3 fit"):
        encode_questions([question("aaaaa"), question("aaaaaa")], encode, 3)
