"""A whole run over retrievers that are told what to find."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specrag.errors import ConfigError, InputError
from specrag.evaluation.reports.compare import compare
from specrag.evaluation.reports.report import load_report
from specrag.evaluation.reports.written import write_report
from specrag.evaluation.retrieval.run import RetrievalRun, evaluate
from specrag.evaluation.retrieval.settings import RetrievalSettings
from specrag.evaluation.retrieval.table import retrieval_table
from tests.evaluation.retrieval.found import Told, dataset

QUESTIONS = [f"q{number}" for number in range(8)]
SET = dataset({question: {f"d{question}": 1.0} for question in QUESTIONS})
RIGHT = {question: [f"d{question}", "x"] for question in QUESTIONS}
LATE = {question: ["x", f"d{question}"] for question in QUESTIONS}
SETTINGS = RetrievalSettings((1, 5))


def run(folder: Path, made: Any = SET, **options: Any) -> RetrievalRun:
    retrievers = {"dense": Told(LATE), "bm25": Told(RIGHT, "words")}
    return evaluate(retrievers, made, SETTINGS, folder, **options)


def test_figures_of_two_retrievers_and_their_difference(tmp_path: Path) -> None:
    seen: list[int] = []
    found = run(tmp_path, sizes={"passages": 12}, on_progress=seen.append)
    figures = found.report.figures
    assert seen == list(range(1, 17))
    values = {
        name: {measure: figure["value"] for measure, figure in measured.items()}
        for name, measured in figures["retrievers"].items()
    }
    assert values == {
        "dense": {"ndcg@10": 0.63093, "mrr@10": 0.5, "recall@1": 0.0, "recall@5": 1.0},
        "bm25": {"ndcg@10": 1.0, "mrr@10": 1.0, "recall@1": 1.0, "recall@5": 1.0},
    }
    changes = {row["measure"]: row for row in figures["differences"]}
    assert (changes["mrr@10"]["first"], changes["mrr@10"]["second"]) == ("dense", "bm25")
    assert changes["mrr@10"]["difference"] == 0.5
    assert changes["mrr@10"]["significant"]
    assert not changes["recall@5"]["significant"]
    assert figures["collection"] == {"passages": 12, "questions": 8, "judgements": 8}
    assert figures["latency_ms"]["dense"]["p99"] > 0
    lines = [json.loads(line) for line in (tmp_path / "items.jsonl").read_text().splitlines()]
    assert lines == list(found.records)
    assert [path.name for path in tmp_path.iterdir()] == ["items.jsonl"]


def test_the_first_lookup_is_not_timed(tmp_path: Path) -> None:
    told = Told(RIGHT)
    evaluate({"dense": told}, SET, SETTINGS, tmp_path)
    assert [query for query, _ in told.asked] == ["q0", *QUESTIONS]


def test_all_but_the_times_is_the_same_each_time(tmp_path: Path) -> None:
    one, two = (run(tmp_path / name).report.figures for name in "ab")
    assert {**one, "latency_ms": 0} == {**two, "latency_ms": 0}


def test_a_report_is_written_read_and_compared(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_report(run(tmp_path / name).report, tmp_path / name)
    assert load_report(tmp_path / "a").kind == "retrieval"
    rows = compare(tmp_path / "a", tmp_path / "b")["rows"]
    assert {(row["group"], row["measure"]) for row in rows} >= {("bm25", "mrr@10")}
    assert all(row["difference"] == 0 for row in rows if row["measure"] != "lookup_ms")


def test_notes_tell_what_was_left_out_or_cannot_be_found(tmp_path: Path) -> None:
    made = dataset({**{question: {f"d{question}": 1.0} for question in QUESTIONS}, "none": {}})
    report = run(tmp_path, made, indexed=["dq0", "x"], notes=["from outside"]).report
    notes = report.configuration["notes"]
    assert "from outside" in notes
    assert "left out 1 questions without a relevant document" in notes
    assert "7 relevant documents are not in the index; they count as not found" in notes
    assert "linear gain" in " ".join(notes)
    assert "told: 8 questions, dense, bm25" in retrieval_table(report)


def test_an_index_of_something_else_is_noticed(tmp_path: Path) -> None:
    other = Told({question: ["x", "y"] for question in QUESTIONS})
    report = evaluate({"dense": other}, SET, SETTINGS, tmp_path).report
    assert "is the index that of the set?" in report.configuration["notes"][-1]
    assert report.figures["differences"] == []
    assert "less" not in retrieval_table(report)


def test_what_cannot_be_measured_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no retriever"):
        evaluate({}, SET, SETTINGS, tmp_path)
    told = Told(RIGHT)
    with pytest.raises(ConfigError, match="none of the 8 relevant"):
        evaluate({"a": told}, SET, SETTINGS, tmp_path, indexed=["x"])
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot make the folder"):
        evaluate({"a": told}, SET, SETTINGS, tmp_path / "file")
    assert told.asked == []
