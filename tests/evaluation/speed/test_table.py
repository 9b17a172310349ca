"""The text table: fits the terminal, and says what the figures say."""

from __future__ import annotations

from typing import Any

import pytest

from specrag.evaluation.speed.figures import speed_figures
from specrag.evaluation.speed.measure import SpeedRun, measure_speed
from specrag.evaluation.speed.table import speed_table
from tests.evaluation.speed.scripted import ScriptedArm, prompt

MACHINE = {"processor": "a CPU", "threads": 2, "cpu_capability": "AVX2", "torch": "2.13"}


@pytest.fixture
def run() -> SpeedRun:
    others = [
        ScriptedArm("suffix", times=lambda prompt, call: 2e4 / prompt, wrong_at=lambda p, c: p - 3),
        ScriptedArm("peer:llama.cpp-ngram", own=False),
    ]
    prompts = [prompt(4, "translation", "translation"), prompt(40, "math_reasoning", "maths")]
    plain = ScriptedArm("none", times=lambda prompt, call: 1e4 + call)
    return measure_speed(plain, others, [*prompts, prompt(41, "math_reasoning")])


def table(run: SpeedRun, **options: Any) -> list[str]:
    return speed_table(speed_figures(run, **options), MACHINE).splitlines()


def test_each_category_has_a_line_for_each_arm(run: SpeedRun) -> None:
    lines = table(run)
    assert lines[0] == "a CPU, 2 threads, AVX2, torch 2.13"
    starts = [line.split()[0] for line in lines[2:14]]
    arms = ["none", "suffix", "peer:llama.cpp-ngram"]
    assert starts == ["translation", *arms, "math_reasoning", *arms, "all", *arms]
    assert lines[6] == "math_reasoning (2 prompts)"


def test_lines_fit_a_terminal(run: SpeedRun) -> None:
    assert max(len(line) for line in table(run)[:14]) <= 100
    assert max(len(line) for line in table(run)) <= 110  # notes in words


def test_figures_stand_in_their_columns(run: SpeedRun) -> None:
    rows = {(r["category"], r["drafter"]): r for r in speed_figures(run)["results"]}
    row = rows["all", "suffix"]
    words = table(run)[12].split()
    low, high = row["tokens_per_second_low"], row["tokens_per_second_high"]
    speed = [f"{row['tokens_per_second']:.2f}", f"({low:.2f}-{high:.1f})"]
    assert words[:4] == ["suffix", "1.00", *speed]
    assert words[4] == f"{row['speedup']:.2f}x"
    assert words[-1] == "2/3"


def test_one_category_is_not_repeated_as_all() -> None:
    lines = table(measure_speed(ScriptedArm("none"), [], [prompt(1), prompt(2)]))
    assert [line.split()[0] for line in lines[2:4]] == ["rag", "none"]
    assert not any(line.startswith("all") for line in lines)


def test_notes_tell_memory_differences_and_tasks(run: SpeedRun) -> None:
    notes = table(run)[14:]
    assert notes[0] == "peak memory 100 MiB: none, suffix"
    assert notes[1] == (
        "suffix: 1 answer differs from plain decoding; top-2 margin where they first do: "
        "median 0.0200, at most 0.0200"
    )
    assert "maths: suffix has 0% of" in notes[-1]
    assert "(usual 60% to 70%)" in notes[-1]


def test_what_is_unknown_is_a_dash(run: SpeedRun) -> None:
    figures = speed_figures(run)
    for row in figures["results"]:
        for name in ("tokens_per_second", "speedup"):
            row[name] = row[f"{name}_low"] = row[f"{name}_high"] = None
        row["mean_acceptance_length"] = row["speedup_with_prefill"] = None
        row["ms_per_token"] = dict.fromkeys(("mean", "p50", "p90", "p99"))
    words = speed_table(figures, MACHINE).splitlines()[3].split()
    assert words == ["none", "-", "-", "-", "-", "-/-/-", "1/1"]
