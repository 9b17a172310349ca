from __future__ import annotations

import dataclasses
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from specrag.cli import output
from specrag.cli.arguments import show_progress
from specrag.cli.ask import ask
from specrag.cli.main import build_app
from specrag.errors import ConfigError, InputError, SpecragError
from specrag.rag.build import SpecRAG

QUESTION = "Who sings in the sea?"
KEYS = {
    "answer",
    "citations",
    "gate",
    "usage",
    "speculation",
    "timings",
    "finish_reason",
    "model",
    "pipeline",
    "index",
    "index_version",
    "request_id",
}

Run = Callable[..., str]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tiny_rag: SpecRAG) -> list[tuple[Any, ...]]:
    """Loads the toy pipeline whatever is named; returns what was named."""
    loaded: list[tuple[Any, ...]] = []

    def load(pipeline: str, *, docs: str | None, index: None, progress: bool) -> SpecRAG:
        assert index is None
        loaded.append((pipeline, docs, progress))
        return tiny_rag

    monkeypatch.setattr(SpecRAG, "load", load)
    return loaded


@pytest.fixture
def run(asked: list[tuple[Any, ...]]) -> Run:
    def run(*args: str, stdin: str = "") -> str:
        words = ["ask", *args]
        result = CliRunner().invoke(build_app(words), words, input=stdin, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    return run


def refusal(*args: str, stdin: str = "") -> SpecragError:
    words = ["ask", *args]
    with pytest.raises(SpecragError) as refused:
        CliRunner().invoke(build_app(words), words, input=stdin, catch_exceptions=False)
    return refused.value


def without_times(answer: dict[str, Any]) -> dict[str, Any]:
    return {key: answer[key] for key in answer if key not in ("timings", "request_id")}


def test_json_is_the_answer_alone(run: Run, tiny_rag: SpecRAG) -> None:
    printed = json.loads(run(QUESTION, "--json"))
    assert set(printed) == KEYS
    assert without_times(printed) == without_times(tiny_rag.ask(QUESTION).to_dict())


def test_the_options_reach_the_pipeline(run: Run, tiny_rag: SpecRAG) -> None:
    words = ["-k", "2", "--mode", "always", "--max-tokens", "9", "--temperature", "0.7"]
    printed = json.loads(run(QUESTION, *words, "--seed", "5", "--json"))
    params = dataclasses.replace(tiny_rag.params, max_tokens=9, temperature=0.7, seed=5)
    expected = tiny_rag.ask(QUESTION, mode="always", k=2, params=params)
    assert without_times(printed) == without_times(expected.to_dict())
    assert printed["usage"]["completion_tokens"] <= 9


def test_the_pipeline_and_the_documents_are_passed_on(
    run: Run, asked: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    pipeline = tmp_path / "own.toml"
    pipeline.write_text("", encoding="utf-8")
    run(QUESTION, "-p", str(pipeline), "--docs", "notes")
    run(QUESTION)
    assert asked == [(str(pipeline), "notes", False), ("qa", None, False)]


@pytest.mark.parametrize("flags", [(), ("--stream",)])
def test_the_text_output_shows_answer_sources_decision_and_figures(
    flags: tuple[str, ...], run: Run, tiny_rag: SpecRAG
) -> None:
    expected = tiny_rag.ask(QUESTION, mode="always")
    printed = run(QUESTION, "--mode", "always", *flags)
    assert printed.startswith(f"{expected.text}\n\n[1] ")
    rest = printed.removeprefix(expected.text)
    for citation in expected.citations:
        place = f"{citation.document}, characters {citation.start}-{citation.end}"
        place += f", line {citation.line}"
        assert f"[{citation.n}] {place}, score {citation.score:.2f}\n" in rest
        assert f'    "{citation.quote}"\n' in rest
    assert f"Gate        {expected.gate.reason}\n" in rest
    words = " ".join(rest.split())
    counts = expected.speculation
    assert f"Decoding {expected.usage.completion_tokens} tokens" in words
    assert f"mean acceptance length {counts.mean_acceptance_length:.2f}, " in words
    assert f"{counts.num_accepted_tokens} of {counts.num_draft_tokens} drafted" in words
    assert "Time " in words
    assert all(len(line) <= 80 for line in rest.splitlines())


def test_without_passages_there_are_no_sources(run: Run, tiny_rag: SpecRAG) -> None:
    printed = run(QUESTION, "--mode", "never")
    assert "[1]" not in printed
    assert "\n\nGate        Mode never: nothing was looked up.\n" in printed


def test_a_long_quote_is_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    output.echo_quote("two\nlines and  " + "word " * 30)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("    two lines and word word")
    assert len(lines) == 3
    assert all(line.startswith("    ") and len(line) <= 80 for line in lines)


def test_streamed_json_is_one_event_a_line(run: Run, tiny_rag: SpecRAG) -> None:
    lines = run(QUESTION, "--mode", "always", "--json", "--stream").splitlines()
    events = [json.loads(line) for line in lines]
    kinds = [event.pop("type") for event in events]
    assert kinds[:2] == ["gate", "passages"]
    assert kinds[-2:] == ["citations", "done"]
    assert set(kinds[2:-2]) == {"token"}
    expected = tiny_rag.ask(QUESTION, mode="always").to_dict()
    assert without_times(events[-1]) == without_times(expected)
    assert "".join(event["text"] for event in events[2:-2]) == expected["answer"]
    assert events[0] == expected["gate"]
    assert [found["document"] for found in events[1]["passages"]] != []
    assert events[-2] == {"citations": expected["citations"]}


def test_a_dash_reads_the_question_from_standard_input(run: Run) -> None:
    piped, typed = run("-", "--json", stdin=f"{QUESTION}\n"), run(QUESTION, "--json")
    assert without_times(json.loads(piped)) == without_times(json.loads(typed))


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("args", "kind", "message"),
    [
        (["q", "--mode", "allways"], ConfigError, "unknown mode 'allways'; did you mean 'always'?"),
        (["q", "-p", "aq"], ConfigError, "no definition named 'aq' in pipelines/"),
        ([" \n"], InputError, "the question is blank"),
        (["-"], InputError, "the question is blank"),
        (["\udcff"], InputError, "the text is not valid UTF-8"),
        (["q", "--temperature", "-1"], ConfigError, "temperature must be 0 (greedy) or more"),
    ],
)
def test_what_cannot_be_used_is_refused(
    args: list[str], kind: type[SpecragError], message: str, asked: list[tuple[Any, ...]]
) -> None:
    refused = refusal(*args)
    assert isinstance(refused, kind)
    assert message in refused.message
    # All but the sampling parameters, whose check needs torch, are seen before anything is loaded.
    assert bool(asked) == ("--temperature" in args)


@pytest.mark.parametrize("words", [["-k", "0"], ["--max-tokens", "0"]])
def test_numbers_out_of_range_are_refused(words: list[str]) -> None:
    result = CliRunner().invoke(build_app(["ask"]), ["ask", "q", *words])
    assert result.exit_code == 2
    assert words[0] in result.output


def test_the_default_pipeline_is_that_of_the_library() -> None:
    default = inspect.signature(SpecRAG.load).parameters["pipeline"].default
    assert inspect.signature(ask).parameters["pipeline"].default == default


@pytest.mark.parametrize(
    ("is_terminal", "no_color", "expected"),
    [
        (True, None, "\x1b[1mtext\x1b[0m"),
        (True, "", "\x1b[1mtext\x1b[0m"),  # the convention: empty counts as not set
        (True, "1", "text"),
        (False, None, "text"),
    ],
)
def test_colours_are_for_terminals_that_want_them(
    is_terminal: bool, no_color: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    assert output.bold("text") == expected


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_needs_a_terminal(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal, raising=False)
    assert show_progress() is is_terminal


def test_each_event_is_shown_when_it_comes(
    monkeypatch: pytest.MonkeyPatch, tiny_rag: SpecRAG
) -> None:
    order: list[str] = []

    def stream(*args: Any, **kwargs: Any) -> Any:
        for event in original(*args, **kwargs):
            order.append(f"made {event.type}")
            yield event

    original = tiny_rag.stream
    monkeypatch.setattr(tiny_rag, "stream", stream)
    monkeypatch.setattr(SpecRAG, "load", lambda *args, **kwargs: tiny_rag)
    monkeypatch.setattr("specrag.cli.ask.echo_text", lambda text: order.append("shown"))
    CliRunner().invoke(build_app(["ask"]), ["ask", QUESTION, "--stream"], catch_exceptions=False)
    tokens = [step for step in order if step in ("made token", "shown")]
    assert len(tokens) >= 4
    assert tokens == ["made token", "shown"] * (len(tokens) // 2)


@pytest.fixture(scope="module")
def own_home(
    embedded_target_path: Path,
    embedded_encoder_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, str]:
    """An environment with the embedded models and no index yet."""
    home = tmp_path_factory.mktemp("home")
    (home / "models").symlink_to(embedded_target_path.parent, target_is_directory=True)
    (home / "docs").mkdir()
    (home / "docs" / "invoice.md").write_text(
        "# Invoice\n\nThe invoice of the boat shop is due on the 9th of May.\n", encoding="utf-8"
    )
    (home / "docs" / "letter.txt").write_text("Greetings from the mountains.", encoding="utf-8")
    assert embedded_encoder_path.parent == embedded_target_path.parent
    return {**os.environ, "SPECRAG_HOME": str(home)}


def specrag(home: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "specrag", *args]
    return subprocess.run(command, capture_output=True, text=True, env=home)


@pytest.mark.embedded
def test_documents_of_ones_own_are_asked_in_one_command(own_home: dict[str, str]) -> None:
    docs = str(Path(own_home["SPECRAG_HOME"]) / "docs")
    words = ["--docs", docs, "--mode", "always", "--max-tokens", "6", "--json"]
    done = specrag(own_home, "ask", "When is the invoice due?", *words)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert set(answer) == KEYS
    assert answer["citations"][0]["document"] == "invoice.md"
    assert "9th of May" in answer["citations"][0]["quote"]
    assert answer["index"].startswith("docs-")
    assert 1 <= answer["usage"]["completion_tokens"] <= 6
    # The second time nothing is built again, and the text is the same.
    words[-1] = "--stream"
    again = specrag(own_home, "ask", "When is the invoice due?", *words)
    assert again.returncode == 0, again.stderr
    assert again.stdout.startswith(f"{answer['answer']}\n\n[1] invoice.md, characters ")
    listed = specrag(own_home, "index", "info", "--json")
    (index,) = json.loads(listed.stdout)
    assert (index["name"], index["index_version"]) == (answer["index"], answer["index_version"])


@pytest.mark.embedded
def test_an_error_is_two_lines_and_status_2(own_home: dict[str, str]) -> None:
    done = specrag(own_home, "ask", "Why?", "--docs", "no/such/folder")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-2:] == [
        "error: there is no folder or file 'no/such/folder'",
        "hint: give a folder of documents that exists",
    ]
