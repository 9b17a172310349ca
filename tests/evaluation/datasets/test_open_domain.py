"""What SQuAD, HotpotQA and PubMedQA say beside question and answer."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from specrag.errors import InputError
from specrag.evaluation.datasets.catalog import load_dataset
from specrag.evaluation.datasets.item import EvalDataset
from tests.evaluation.datasets.samples import HOTPOTQA, PUBMEDQA, SQUAD


def load(folder: Path, value: Any, split: str = "") -> EvalDataset:
    path = folder / "set"
    path.write_text(json.dumps(value))
    return load_dataset(str(path), split=split)


def test_a_question_that_is_impossible_has_no_answer_whatever_is_listed(tmp_path: Path) -> None:
    squad = copy.deepcopy(SQUAD)
    asked: Any = squad["data"][0]["paragraphs"][0]["qas"][1]  # type: ignore[index]
    asked["answers"] = [{"text": "Ada", "answer_start": 0}]
    possible, impossible = load(tmp_path, squad).items
    assert dict(possible.metadata) == {}
    assert dict(impossible.metadata) == {"is_impossible": 1.0}
    assert impossible.answers == impossible.documents == ()


def test_all_paragraphs_of_a_supporting_title_hold_the_answer(tmp_path: Path) -> None:
    (row,) = json.loads(HOTPOTQA)
    row |= {"level": "hard"}
    row["context"] += [["Mill", ["Another mill."]], ["Mill", [" "]], ["Mill", ["Another mill."]]]
    found = load(tmp_path, [row])
    titles = {document.id: document.title for document in found.documents}
    assert [titles[place] for place in found.items[0].documents] == ["Mill", "Mill"]
    assert dict(found.items[0].metadata) == {"level": "hard"}


@pytest.mark.parametrize(
    ("truth", "match"),
    [("[3]", "no object or list of ids"), ('{"99": "no"}', "names '99'"), ("{", "not JSON")],
)
def test_a_damaged_split_of_pubmedqa_is_named(tmp_path: Path, truth: str, match: str) -> None:
    (tmp_path / "test_ground_truth.json").write_text(truth)
    with pytest.raises(InputError, match=f"test_ground_truth.*{match}"):
        load(tmp_path, json.loads(PUBMEDQA), "test")


def test_a_decision_that_is_no_choice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\(12\): unknown final_decision 'nope'; .*'no'"):
        load(tmp_path, json.loads(PUBMEDQA.replace('"no"', '"nope"')))
