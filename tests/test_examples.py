"""Every example runs, in a process of its own, and does what it says."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
TESTED = {
    "answer_with_citations",
    "custom_drafter",
    "generate",
    "serve_and_query",
    "stream",
}


def run(name: str, **environment: str) -> str:
    """Runs an example from a folder that is not the checkout; returns what it printed."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{name}.py")],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return done.stdout


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES} == TESTED


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_says_what_it_does(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    assert ast.get_docstring(ast.parse(text))


def test_custom_drafter_changes_the_passes_and_not_the_text(tmp_path: Path) -> None:
    output = run("custom_drafter", SPECRAG_HOME=str(tmp_path))
    assert "equal to plain decoding: True" in output
    found = re.search(r"passes: (\d+) plainly, (\d+) with the drafter", output)
    assert found, output
    assert int(found[1]) == 47  # 48 tokens, the first of them from the prompt's pass
    assert int(found[2]) < int(found[1])
    assert list(tmp_path.iterdir()) == []  # the toy model needs no home


@pytest.mark.embedded
def test_generate(embedded_home: Path) -> None:
    output = run("generate", SPECRAG_HOME=str(embedded_home))
    assert "greedy: 1, 2, 3, 4, 5" in output
    assert "the same again: True" in output
    assert "sampled with seed 7: " in output
    found = re.search(r"(\d+) tokens in (\d+) passes .*, (\d+) of (\d+) drafted", output)
    assert found, output
    tokens, passes, accepted, drafted = map(int, found.groups())
    assert tokens == 1 + passes + accepted
    assert accepted <= drafted
    assert re.findall(r"^batch \(\w+\): ", output, re.MULTILINE) == [
        "batch (stop): ",
        "batch (length): ",
    ]
    assert "Paris" in output


@pytest.mark.embedded
def test_stream(embedded_home: Path) -> None:
    output = run("stream", SPECRAG_HOME=str(embedded_home))
    assert "quick brown fox" in output
    rounds = re.search(r"tokens of each round: \[(.*)\]", output)
    summary = re.search(r"(\d+) tokens in (\d+) rounds, ended by: (stop|length)", output)
    assert rounds, output
    assert summary, output
    sizes = [int(size) for size in rounds[1].split(",")]
    assert (sum(sizes), len(sizes)) == (int(summary[1]), int(summary[2]))
    assert sizes[0] == 1  # the prompt's pass
    assert min(sizes) >= 1


@pytest.mark.embedded
def test_answer_with_citations(embedded_home: Path) -> None:
    output = run("answer_with_citations", SPECRAG_HOME=str(embedded_home))
    assert "[1] gate.md, characters " in output
    assert "\n    The gate has three zones: confident, needed and unsure.\n" in output
    assert "Hello!\n  retrieve: False, zone: fixed\n" in output
    found = re.search(r"(\d+) prompt tokens, (\d+) of them passages", output)
    assert found, output
    assert 0 < int(found[2]) < int(found[1])


@pytest.mark.embedded
def test_serve_and_query(embedded_home: Path) -> None:
    output = run("serve_and_query", SPECRAG_HOME=str(embedded_home))
    assert "serving: qa over handbook\n" in output
    assert re.search(r"^answer: \S", output, re.MULTILINE)
    assert re.search(r"^sources: \['[\w-]+\.md'", output, re.MULTILINE), output
    assert output.endswith("exit status: 0\n")
