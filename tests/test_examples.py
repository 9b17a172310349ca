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
    "batch_speed",
    "custom_drafter",
    "generate",
    "join_rows",
    "mix_drafters",
    "serve_and_query",
    "stream",
}


def run(name: str, *words: str, **environment: str) -> str:
    """Runs an example from a folder that is not the checkout; returns what it printed."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{name}.py"), *words],
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


def test_mix_drafters_counts_what_each_of_them_brought(tmp_path: Path) -> None:
    output = run("mix_drafters", SPECRAG_HOME=str(tmp_path))
    plain, *mixed = re.findall(r"^(\S+): (\d+) passes", output, re.MULTILINE)
    assert plain == ("none", "63")  # 64 tokens, the first of them from the prompt's pass
    assert [name for name, _ in mixed] == ["suffix+prompt_lookup", "selector"]
    assert output.count("equal to plain decoding: True") == 2
    parts = output.split("\n\n")[1:]
    for (_, passes), part in zip(mixed, parts, strict=True):
        pattern = r"^  (drafter|kind of text) (\S+): (\d+) of (\d+) tokens accepted"
        lines = re.findall(pattern, part, re.MULTILINE)
        accepted = [int(count) for kind, _, count, _ in lines if kind == "drafter"]
        assert len(accepted) == 2
        assert all(int(count) <= int(drafted) for *_, count, drafted in lines)
        # A token that both proposed counts for both.
        assert max(accepted) <= 63 - int(passes) <= sum(accepted)
        assert int(passes) < 63
    assert "kind of text text: " in parts[1]
    assert list(tmp_path.iterdir()) == []


def test_join_rows_join_and_leave_a_running_batch(tmp_path: Path) -> None:
    output = run("join_rows", SPECRAG_HOME=str(tmp_path))
    ends = re.findall(r"^row (\d): (\d+) tokens, (\w+)$", output, re.MULTILINE)
    assert [(row, reason) for row, _, reason in ends] == [
        ("0", "length"),
        ("1", "length"),
        ("2", "cancelled"),
    ]
    assert [int(count) for _, count, _ in ends[:2]] == [40, 12]
    assert 0 < int(ends[2][1]) < 40
    rounds = dict(re.findall(r"^row (\d) ended in round (\d+): length$", output, re.MULTILINE))
    assert int(rounds["1"]) < int(rounds["0"])
    assert "the late row is as if alone: True" in output
    assert list(tmp_path.iterdir()) == []


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
def test_batch_speed(embedded_home: Path) -> None:
    output = run("batch_speed", "--max-tokens", "3", SPECRAG_HOME=str(embedded_home))
    rows = re.findall(r"(plain|suffix), batches of (\d): (\d+\.\d\d)x\n", output)
    assert [row[:2] for row in rows] == [
        (name, size) for name in ("plain", "suffix") for size in ("1", "4", "8")
    ]
    assert rows[0][2] == "1.00"


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
