"""The command line of evaluation: what is refused before a model is loaded, and a whole run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from specrag.cli.main import build_app
from specrag.errors import SpecragError

_QUESTIONS = (
    '{"question": "When was the mill built?", "answer": ["1702"]}\n'
    '{"question": "Where does the mill stand?", "answer": ["at the river"]}\n'
)


def run(*args: str) -> Result:
    words = ["eval", *args]
    return CliRunner().invoke(build_app(words), words)


@pytest.fixture
def questions(tmp_path: Path) -> str:
    path = tmp_path / "set.jsonl"
    path.write_text(_QUESTIONS)
    return str(path)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["--modes", "never,sometimes"], "unknown mode"),
        (["--column", "question"], "--column needs"),
        (["--column", "question=nothing"], "no column 'nothing'"),
        (["--format", "sqad"], "did you mean 'squad'"),
        (["--corpus", ".", "--index", "handbook"], "exclude each other"),
        ([], "comes without documents"),
        (["--pipeline", "qaa"], "qaa"),
    ],
)
def test_bad_options_are_refused_before_a_model_is_loaded(
    questions: str, options: list[str], match: str
) -> None:
    result = run("qa", questions, *options)
    assert isinstance(result.exception, SpecragError)
    assert match in str(result.exception)


@pytest.fixture
def paragraphs(tmp_path: Path) -> str:
    """A set whose questions name the paragraph that answers them."""
    texts = {"mill": "The mill was built in 1702.", "smith": "The smith is called Bo."}
    asked = {"mill": ("When was the mill built?", "1702"), "smith": ("Who is the smith?", "Bo")}
    paragraphs = [
        {
            "context": text,
            "qas": [
                {"id": name, "question": asked[name][0], "answers": [{"text": asked[name][1]}]},
                {"id": f"no {name}", "question": "Why?", "answers": [], "is_impossible": True},
            ],
        }
        for name, text in texts.items()
    ]
    path = tmp_path / "paragraphs.json"
    path.write_text(json.dumps({"data": [{"title": "", "paragraphs": paragraphs}]}))
    return str(path)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["--retrievers", "dense,bm52"], "unknown search mode 'bm52'; did you mean 'bm25'"),
        (["--retrievers", "dense,dense"], "names that differ"),
        (["--retrievers", ","], "names that differ"),
        (["--k", "1,five"], "whole numbers with commas, got '1,five'"),
        (["--k", "0"], "at least 1, got 0"),
        (["--k", ""], "no number of documents"),
        (["--gain", "lineal"], "unknown gain 'lineal'; did you mean 'linear'"),
        (["--corpus", ".", "--index", "handbook"], "exclude each other"),
        (["--corpus", "CORPUS"], "none of the 2 relevant documents"),
    ],
)
def test_bad_retrieval_options_are_refused_before_a_model_is_loaded(
    paragraphs: str, tmp_path: Path, options: list[str], match: str
) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "other.md").write_text("# Other\n\nSomething else.\n")
    words = [str(tmp_path / "corpus") if word == "CORPUS" else word for word in options]
    result = run("retrieval", paragraphs, *words)
    assert isinstance(result.exception, SpecragError)
    assert match in str(result.exception)


def test_a_set_without_judgements_is_refused(questions: str) -> None:
    result = run("retrieval", questions)
    assert "does not say which documents answer its questions" in str(result.exception)


@pytest.mark.embedded
def test_retrieval_is_measured_and_written(
    paragraphs: str, tmp_path: Path, embedded_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECRAG_HOME", str(embedded_home))
    folder = tmp_path / "run"
    options = ["--k", "1,5", "--out", str(folder)]
    result = run("retrieval", paragraphs, *options, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    figures = report["figures"]
    assert list(figures["retrievers"]) == ["dense", "bm25", "hybrid"]
    assert {found["recall@1"]["value"] for found in figures["retrievers"].values()} == {1.0}
    assert figures["collection"] == {
        "documents": 2, "passages": 2, "questions": 2, "judgements": 2
    }  # fmt: skip
    assert any("left out 2 questions" in note for note in report["configuration"]["notes"])
    names = {path.name for path in folder.iterdir()}
    assert {"items.jsonl", "report.json", "report.md", "report.html"} <= names
    shown = run("retrieval", paragraphs, *options, "--retrievers", "bm25")
    assert "2 questions, bm25" in shown.stdout


def test_corpora_that_clash_are_refused(questions: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "README.md").write_text(f"# {name}\n\nThe mill.\n")
    corpora = [word for name in ("one", "two") for word in ("--corpus", str(tmp_path / name))]
    result = run("qa", questions, *corpora)
    assert "two corpora have a document with the id 'README.md'" in str(result.exception)


@pytest.mark.embedded
def test_a_run_is_written_and_compared(
    questions: str, tmp_path: Path, embedded_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECRAG_HOME", str(embedded_home))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "mill.md").write_text(
        "# Mill\n\nThe mill stands at the river. It was built in 1702.\n"
    )
    folder = tmp_path / "run"
    options = ["--corpus", str(tmp_path / "docs"), "--max-tokens", "6", "--out", str(folder)]
    result = run("qa", questions, *options, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["figures"]["modes"]["always"]["answer_in_context"]["value"] == 1.0
    assert report["command"].startswith("specrag")
    lines = (folder / "items.jsonl").read_text().splitlines()
    assert len(lines) == 6
    assert (folder / "report.html").is_file()
    shown = run("qa", questions, *options)
    assert "2 questions, pipeline qa" in shown.stdout
    compared = run("compare", str(folder), str(folder), "--json")
    assert all(row["difference"] == 0 for row in json.loads(compared.stdout)["rows"])
