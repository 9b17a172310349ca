"""Every format is told by its content alone, and damage is named with its place."""

from __future__ import annotations

import json
import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.errors import ConfigError, InputError, MissingExtraError
from specrag.evaluation.datasets.catalog import (
    FORMATS,
    ROW_FORMATS,
    load_dataset,
    load_documents,
    sample,
)
from specrag.evaluation.datasets.files import read_file, rows_of
from specrag.evaluation.datasets.item import EvalDataset, EvalItem
from tests.evaluation.datasets.samples import (
    FILES,
    GSM8K,
    HUMANEVAL,
    MBPP,
    NQ_OPEN,
    PACKINGS,
    PLAIN,
    POPQA,
    PUBMEDQA,
    SQUAD_ROWS,
    write_beir,
    write_cranfield,
)


def written(folder: Path, content: str, name: str = "set.data", packing: str = "") -> str:
    path = folder / f"{name}{packing}"
    path.write_bytes(PACKINGS[packing](content.encode()))
    return str(path)


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize(("name", "content"), FILES.values(), ids=list(FILES))
def test_each_format_is_told_by_its_content(
    tmp_path: Path, name: str, content: str, packing: str
) -> None:
    found = load_dataset(written(tmp_path, content, packing=packing))
    assert found.format == name
    assert len({item.id for item in found.items}) == len(found.items) > 0
    known = {document.id for document in found.documents}
    assert all(set(item.documents) <= known for item in found.items)


@pytest.mark.parametrize(("name", "content"), FILES.values(), ids=list(FILES))
def test_no_sample_looks_like_another_format(tmp_path: Path, name: str, content: str) -> None:
    first = rows_of(read_file(Path(written(tmp_path, content)))).values[0]
    fitting = [key for key, known in ROW_FORMATS.items() if known.fits(first)]
    assert fitting == ([name] if name in ROW_FORMATS else [])


def test_every_format_has_a_sample() -> None:
    assert {name for name, _ in FILES.values()} | {"beir", "cranfield"} == set(FORMATS)
    assert set(ROW_FORMATS) <= set(FORMATS)


def test_squad_keeps_answers_paragraphs_and_questions_without_an_answer(tmp_path: Path) -> None:
    found = load_dataset(written(tmp_path, FILES["squad"][1], "squad.json"))
    first, second = found.items
    assert (found.name, found.task, found.source) == (
        "squad",
        "short_answer",
        str(tmp_path / "squad.json"),
    )
    assert first.answers == ("1702", "in 1702")
    assert second.answers == second.documents == ()
    assert first.documents == (found.documents[0].id,)
    assert found.documents[0].title == "Mill"


def test_popqa_shares_passages_and_keeps_popularity(tmp_path: Path) -> None:
    found = load_dataset(written(tmp_path, POPQA))
    assert [document.title for document in found.documents] == ["Ada", "Bo"]
    assert [item.metadata["popularity"] for item in found.items] == [120.0, 3.0]
    assert found.items[1].documents == (found.documents[1].id,)
    assert found.items[0].category == "occupation"


@pytest.mark.parametrize("name", ["hotpotqa", "hotpotqa columns"])
def test_hotpotqa_names_the_supporting_paragraph(tmp_path: Path, name: str) -> None:
    found = load_dataset(written(tmp_path, FILES[name][1]))
    (place,) = found.items[0].documents
    assert {document.id: document.title for document in found.documents}[place] == "Mill"


def test_pubmedqa_has_choices_and_splits(tmp_path: Path) -> None:
    source = written(tmp_path, PUBMEDQA, "ori.json")
    found = load_dataset(source)
    assert found.task == "choice"
    assert [item.answers for item in found.items] == [("yes",), ("no",)]
    (tmp_path / "test_ground_truth.json").write_text('{"12": "no"}')
    part = load_dataset(source, split="test")
    assert [item.id for item in part.items] == ["12"]
    assert len(part.documents) == 2  # the other abstracts are what retrieval must tell apart
    with pytest.raises(InputError, match="dev_ground_truth"):
        load_dataset(source, split="dev")


def test_numbers_code_and_prompts(tmp_path: Path) -> None:
    assert load_dataset(written(tmp_path, GSM8K)).items[0].answers == ("6",)
    code = load_dataset(written(tmp_path, HUMANEVAL)).items[0]
    assert "def double(x):" in code.question
    assert code.metadata["entry_point"] == "double"
    assert load_dataset(written(tmp_path, MBPP)).items[0].metadata["entry_point"] == "double"
    verse, rag = load_dataset(written(tmp_path, FILES["spec bench"][1])).items
    assert (verse.category, verse.metadata["group"], verse.turns) == (
        "writing",
        "mt_bench",
        ("Again.",),
    )
    assert rag.metadata["group"] == "rag"


def test_plain_rows_take_a_column_map(tmp_path: Path) -> None:
    source = written(tmp_path, PLAIN)
    item = load_dataset(
        source, columns={"question": "query", "answers": "gold", "category": "kind"}
    ).items[0]
    assert (item.question, item.answers, item.category) == (
        "Where is the mill?",
        ("at the river",),
        "place",
    )
    with pytest.raises(ConfigError, match="did you mean 'query'"):
        load_dataset(source, columns={"question": "qwery"})
    with pytest.raises(ConfigError, match="did you mean 'question'"):
        load_dataset(source, columns={"qestion": "query"})
    table = load_dataset(written(tmp_path, FILES["table"][1], "t.csv"))
    assert table.items[0].question == "Where, exactly, is it?"


def test_folders(tmp_path: Path) -> None:
    beir = load_dataset(str(write_beir(tmp_path / "beir")))
    assert [(item.id, item.documents) for item in beir.items] == [("q1", ("d1",))]
    assert len(beir.documents) == 2
    cran = load_dataset(str(write_cranfield(tmp_path / "cran")))
    assert [item.documents for item in cran.items] == [("1",), ("2", "1")]
    assert cran.items[0].question == "how slow is the flow"
    assert [document.text for document in cran.documents] == [
        "The flow is slow.",
        "The heat is high.",
    ]
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="no evaluation set"):
        load_dataset(str(tmp_path / "none"))


DAMAGES = {
    "a question is blank": ('{"question": " ", "answer": ["a"]}\n', "line 1 .*blank"),
    "a question is no text": ('{"question": 3, "answer": ["a"]}\n', "line 1 .*no text"),
    "an id is there twice": (SQUAD_ROWS + SQUAD_ROWS, "line 2 .*'a' is there already"),
    "a line is cut off": (NQ_OPEN + '{"question": "wh', "line 3 .*not JSON"),
    "a line is no object": (NQ_OPEN + "[1]\n", "line 3 .*no object"),
    "answers are no texts": (
        '{"question": "q", "answer": [{"a": 1}]}\n',
        "line 1 .*list of texts",
    ),
    "a table row is short": ("question,answer\nonly one\n", "line 2 .*cells"),
    "no column is a question": ('{"foo": "bar"}\n', "looks like a question"),
    "nothing": (" \n", "is empty"),
    "a head alone": ("question,answer\n", "no rows"),
    "no popularity": (POPQA.replace('"s_pop": 3', '"s_pop": "many"'), "entry 2 .*many"),
    "no context": (PUBMEDQA.replace('"CONTEXTS": ["No', '"CONTEXT": ["No'), "entry 2 .*CONTEXTS"),
    "squad without data": ('{"data": [{"title": "x"}]}', "paragraphs"),
}


@pytest.mark.parametrize("name", [name for name, (_, match) in DAMAGES.items() if match])
def test_damage_is_named_with_its_place(tmp_path: Path, name: str) -> None:
    content, match = DAMAGES[name]
    with pytest.raises(InputError, match=match):
        load_dataset(written(tmp_path, content))


@pytest.mark.parametrize("packing", [".gz", ".xz"])
def test_a_damaged_archive_is_refused(tmp_path: Path, packing: str) -> None:
    path = Path(written(tmp_path, NQ_OPEN * 50, packing=packing))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="damaged archive"):
        load_dataset(str(path))


def test_other_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        load_dataset(str(tmp_path / "missing.jsonl"))
    with pytest.raises(ConfigError, match="did you mean 'squad'"):
        load_dataset(written(tmp_path, NQ_OPEN), "sqad")
    with pytest.raises(InputError):
        load_dataset(written(tmp_path, NQ_OPEN), "squad")
    (tmp_path / "latin").write_bytes(b'{"question": "caf\xe9", "answer": ["a"]}')
    with pytest.raises(InputError, match="not UTF-8"):
        load_dataset(str(tmp_path / "latin"))


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    assert load_dataset(written(tmp_path, "\ufeff" + NQ_OPEN)).format == "nq_open"


def test_the_digest_is_of_the_bytes(tmp_path: Path) -> None:
    one, two = (load_dataset(written(tmp_path, text)) for text in (NQ_OPEN, NQ_OPEN + "\n"))
    assert one.items == two.items
    assert one.sha256 != two.sha256


def numbered(count: int, categories: int) -> EvalDataset:
    items = tuple(
        EvalItem(str(n), f"question {n}", category=str(n % categories)) for n in range(count)
    )
    return EvalDataset("set", "plain", "set", "0", "open", items)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 5), st.integers(1, 5))
def test_a_sample_is_a_seeded_part_in_order(size: int, count: int, seed: int, most: int) -> None:
    whole = numbered(size, 3)
    part = sample(whole, count, seed)
    assert part == sample(whole, count, seed)
    assert len(part.items) == min(count, size)
    assert [item for item in whole.items if item in part.items] == list(part.items)
    spread = sample(whole, None, seed, per_category=most)
    counts = [sum(item.category == name for item in spread.items) for name in "012"]
    assert counts == [
        min(most, sum(item.category == name for item in whole.items)) for name in "012"
    ]


def test_samples_differ_by_seed_and_refuse_nothing() -> None:
    whole = numbered(100, 1)
    assert sample(whole, 10, 1) != sample(whole, 10, 2)
    assert sample(whole) == whole
    with pytest.raises(ConfigError, match="at least 1"):
        sample(whole, 0)


def test_documents_come_from_sets_rows_and_text_files(tmp_path: Path) -> None:
    rows = [{"title": "Mill", "text": "At the river."}, {"title": "Mill", "text": "Another."}]
    corpus = written(tmp_path, json.dumps(rows), "corpus.json", ".xz")
    assert [document.text for document in load_documents(corpus)] == ["At the river.", "Another."]
    assert len(load_documents(written(tmp_path, POPQA))) == 2
    assert len(load_documents(str(write_beir(tmp_path / "beir")))) == 2
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.md").write_text("# Mill\n\nAt the river.\n")
    assert len(load_documents(str(notes))) == len(load_documents(str(notes / "a.md"))) == 1
    with pytest.raises(InputError, match="no documents"):
        load_documents(written(tmp_path, NQ_OPEN))


def test_files_that_are_left_out_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "good.md").write_text("Words.")
    (tmp_path / "bad.md").write_bytes(b"\0\1" * 40)
    assert [document.id for document in load_documents(str(tmp_path))] == ["good.md"]
    assert "bad.md: is binary" in caplog.text


def test_text_files_without_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(" ")
    for source in (tmp_path, tmp_path / "a.md"):
        with pytest.raises(InputError, match=r"a\.md.* holds no text"):
            load_documents(str(source))


@pytest.mark.parametrize("turns", [[], [" "], ["a", ""]])
def test_a_blank_turn_is_refused_not_left_out(tmp_path: Path, turns: list[str]) -> None:
    row = {"question_id": 1, "category": "qa", "turns": turns}
    with pytest.raises(InputError, match="line 1 .*blank"):
        load_dataset(written(tmp_path, json.dumps(row)))


class FakeHub(types.ModuleType):
    """Stands for the `datasets` library where it is not installed: the same call, made-up rows."""

    def load_dataset(self, name: str, config: str | None) -> dict[str, list[dict[str, Any]]]:
        if name == "nobody/nothing":
            raise ConnectionError("no network")
        assert (name, config) in {("someone/squad", None), ("someone/squad", "en")}
        return {
            "train": [{"question": "t", "answer": ["t"]}],
            "validation": [json.loads(SQUAD_ROWS)],
        }


def test_hub_sets_are_read_through_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", FakeHub("datasets"))
    found = load_dataset("hub:someone/squad:en")
    assert (found.name, found.format, len(found.documents)) == ("squad", "squad_rows", 1)
    assert load_dataset("hub:someone/squad", split="train").format == "nq_open"
    assert load_documents("hub:someone/squad") == load_dataset("hub:someone/squad").documents
    assert load_dataset("hub:someone/squad", "squad").format == "squad_rows"
    with pytest.raises(InputError, match="row 1 of 'hub:someone/squad'"):
        load_dataset("hub:someone/squad", "popqa")
    with pytest.raises(InputError, match="has no split 'dev'"):
        load_dataset("hub:someone/squad", split="dev")
    with pytest.raises(InputError, match=r"cannot fetch .*no network"):
        load_dataset("hub:nobody/nothing")


def test_without_the_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match="datasets"):
        load_dataset("hub:someone/squad")


REAL = {
    "xquad/xquad.en.json": ("squad", 1190, 240),
    "xquad/xquad.zh.json": ("squad", 1190, 240),
    "popqa/popqa.json": ("popqa", 1000, 1475),
    "nq_open/NQ-open.dev.jsonl": ("nq_open", 3610, 0),
    "pubmedqa/ori_pqal.json": ("pubmedqa", 1000, 1000),
    "gsm8k/test.jsonl": ("gsm8k", 1319, 0),
    "humaneval/HumanEval.jsonl.gz": ("humaneval", 164, 0),
    "mbpp/mbpp_dev.jsonl": ("mbpp", 487, 0),
    "spec_bench/question.jsonl": ("spec_bench", 480, 0),
    "cranfield": ("cranfield", 225, 1398),  # two of its 1400 documents have no text
}


@pytest.mark.slow
@pytest.mark.skipif("SPECRAG_DATA" not in os.environ, reason="SPECRAG_DATA names no data")
@pytest.mark.parametrize("name", REAL)
def test_the_public_sets_are_read_whole(name: str) -> None:
    found = load_dataset(str(Path(os.environ["SPECRAG_DATA"]) / name))
    assert (found.format, len(found.items), len(found.documents)) == REAL[name]


CORPORA = {
    "corpora/2wikimultihopqa_corpus.json": 6119,
    "corpora/foldoc.jsonl.xz": 12_019,  # two of its 12,021 entries have no text
    "popqa/popqa.json": 1475,
    "cranfield": 1398,
}


@pytest.mark.slow
@pytest.mark.skipif("SPECRAG_DATA" not in os.environ, reason="SPECRAG_DATA names no data")
@pytest.mark.parametrize("name", CORPORA)
def test_the_public_corpora_are_read_whole(name: str) -> None:
    assert len(load_documents(str(Path(os.environ["SPECRAG_DATA"]) / name))) == CORPORA[name]


@pytest.mark.slow
@pytest.mark.skipif("SPECRAG_DATA" not in os.environ, reason="SPECRAG_DATA names no data")
def test_the_test_part_of_pubmedqa_is_half_of_it() -> None:
    source = Path(os.environ["SPECRAG_DATA"]) / "pubmedqa" / "ori_pqal.json"
    found = load_dataset(str(source), split="test")
    assert (len(found.items), len(found.documents)) == (500, 1000)
