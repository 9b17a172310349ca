"""Columns of plain rows, guessed or named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specrag.errors import ConfigError, InputError
from specrag.evaluation.datasets.catalog import PLAIN_NAMES, load_dataset
from specrag.evaluation.datasets.item import EvalDataset
from specrag.evaluation.datasets.plain import COLUMNS
from tests.evaluation.datasets.samples import FILES, NQ_OPEN, PLAIN, SQUAD_ROWS


def load(folder: Path, text: str, **options: object) -> EvalDataset:
    path = folder / "set"
    path.write_text(text)
    return load_dataset(str(path), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [name for key in ("question", "answers") for name in COLUMNS[key]])
def test_each_usual_name_is_guessed(tmp_path: Path, name: str) -> None:
    other = "answer" if name in COLUMNS["question"] else "question"
    (item,) = load(tmp_path, json.dumps({name: "one", other: "two"}), format="plain").items
    assert sorted((item.question, *item.answers)) == ["one", "two"]


@pytest.mark.parametrize("name", PLAIN_NAMES)
def test_plain_sets_go_by_the_names_of_their_files_too(tmp_path: Path, name: str) -> None:
    assert load(tmp_path, PLAIN, format=name).format == "plain"


def test_the_format_that_is_named_is_the_one_that_is_read(tmp_path: Path) -> None:
    assert load(tmp_path, NQ_OPEN, format="plain").format == "plain"
    for folder in ("beir", "cranfield"):
        with pytest.raises(InputError, match=folder):
            load(tmp_path, NQ_OPEN, format=folder)
    with pytest.raises(ConfigError, match="'nq_open'|nq_open knows"):
        load(tmp_path, NQ_OPEN, format="nq_open", columns={"question": "question"})


@pytest.mark.parametrize("name", [name for name in FILES if name != "pubmedqa"])
def test_a_split_that_the_format_has_not_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="no split 'test'"):
        load(tmp_path, FILES[name][1], split="test")


def test_contexts_are_one_text_or_several(tmp_path: Path) -> None:
    row = {"question": "q", "answer": "a", "context": ["one", " ", "two", "one"]}
    found = load(tmp_path, json.dumps(row))
    assert [document.text for document in found.documents] == ["one", "two"]
    assert len(found.items[0].documents) == 2
    assert not load(tmp_path, json.dumps({**row, "context": ""})).documents
    assert not load(tmp_path, json.dumps({**row, "context": {"of": "mine"}})).documents


def test_a_blank_answer_is_none(tmp_path: Path) -> None:
    found = load(tmp_path, "question,answer\nwhy,\nwho,me\n")
    assert [item.answers for item in found.items] == [(), ("me",)]


def test_titles_and_categories_that_are_null_are_not_called_none(tmp_path: Path) -> None:
    squad = json.loads(SQUAD_ROWS)
    assert load(tmp_path, json.dumps({**squad, "title": None})).documents[0].title is None
    row = json.loads(PLAIN)
    assert load(tmp_path, json.dumps({**row, "kind": None})).items[0].category == ""
