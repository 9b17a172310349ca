"""The rows of a report, held against a slow calculation from the samples."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.decoding.budget import PassCosts
from specrag.evaluation.speed.arm import Sample
from specrag.evaluation.speed.figures import speed_figures
from specrag.evaluation.speed.measure import DecodedPrompt, SpeedRun, measure_speed
from tests.evaluation.speed.scripted import ScriptedArm, counted, prompt

LAYOUT = {
    "category", "drafter", "num_prompts", "num_tokens", "tokens_per_second",
    "tokens_per_second_low", "tokens_per_second_high", "speedup", "speedup_low", "speedup_high",
    "speedup_with_prefill", "speedup_median_of_prompts", "prefill_ms", "ms_per_token",
    "mean_acceptance_length", "acceptance_by_depth", "acceptance", "equal_share",
    "num_equal_to_plain", "first_differences", "peak_memory_mb", "speculation", "details",
    "prompts",
}  # fmt: skip


def rows_of(run: SpeedRun, **options: Any) -> dict[tuple[str, str], dict[str, Any]]:
    rows = speed_figures(run, **options)["results"]
    assert all(row.keys() == LAYOUT for row in rows)
    return {(row["category"], row["drafter"]): row for row in rows}


def run_of(samples: dict[str, list[list[Sample]]], categories: str) -> SpeedRun:
    """A run of one prompt a letter: its category; samples by arm, prompt and round."""
    run = SpeedRun("none", tuple(samples))
    for place, category in enumerate(categories):
        found = {arm: of_arm[place] for arm, of_arm in samples.items() if of_arm[place]}
        run.prompts.append(DecodedPrompt(prompt(place, category), found["none"][0], found))
    return run


@st.composite
def runs(draw: st.DrawFn) -> tuple[SpeedRun, str]:
    categories = draw(st.text("xy", min_size=1, max_size=5))
    rounds = draw(st.integers(1, 3))
    lengths = [draw(st.integers(2, 9)) for _ in categories]

    def one(length: int) -> Sample:
        cuts = sorted(draw(st.sets(st.integers(1, length - 2)))) if length > 2 else []
        ends = [0, *cuts, length - 1]
        tokens = tuple(b - a for a, b in zip(ends, ends[1:], strict=False))
        times = tuple(draw(st.floats(1, 100)) for _ in tokens)
        prefill = draw(st.floats(1, 100))
        stats = counted(*(size - 1 for size in tokens), drafted=length)
        return Sample(
            tuple(range(length)), prefill, sum(times), times, tokens, stats,
            stats.mean_acceptance_length,
        )  # fmt: skip

    samples = {
        arm: [[one(length) for _ in range(rounds)] for length in lengths]
        for arm in ("none", "fast")
    }
    return run_of(samples, categories), categories


def expected(run: SpeedRun, places: list[int], arm: str) -> dict[str, Any]:
    """The figures from the samples, the long way."""

    def medians(name: str, of: str) -> list[float]:
        return [
            statistics.median(getattr(sample, name) for sample in run.prompts[i].samples[of])
            for i in places
        ]

    later = [len(run.prompts[i].seen.token_ids) - 1 for i in places]
    mine, plain = medians("decode_ms", arm), medians("decode_ms", "none")
    mine_all = sum(mine) + sum(medians("prefill_ms", arm))
    plain_all = sum(plain) + sum(medians("prefill_ms", "none"))
    each: list[float] = []
    for i in places:
        for sample in run.prompts[i].samples[arm]:
            for ms, count in zip(sample.step_ms, sample.step_tokens, strict=True):
                each += [ms / count] * count
    return {
        "num_prompts": len(places),
        "num_tokens": sum(later) + len(later),
        "tokens_per_second": 1e3 * sum(later) / sum(mine),
        "speedup": sum(plain) / sum(mine),
        "speedup_with_prefill": plain_all / mine_all,
        "speedup_median_of_prompts": statistics.median(
            b / a for a, b in zip(mine, plain, strict=True)
        ),
        "prefill_ms": statistics.median(medians("prefill_ms", arm)),
        "ms_per_token.mean": sum(mine) / sum(later),
        "ms_per_token.p50": statistics.median(each),
        "equal_share": 1.0,
    }


@given(runs())
@settings(deadline=None, max_examples=60)
def test_figures_are_those_of_the_long_way(made: tuple[SpeedRun, str]) -> None:
    run, categories = made
    rows = rows_of(run)
    wanted = [*dict.fromkeys(categories), "all"]
    assert list(rows) == [(category, arm) for category in wanted for arm in ("none", "fast")]
    for (category, arm), row in rows.items():
        places = [i for i, name in enumerate(categories) if category in ("all", name)]
        for name, value in expected(run, places, arm).items():
            outer, _, inner = name.partition(".")
            found = row[outer][inner] if inner else row[outer]
            assert found == pytest.approx(value, rel=1e-3, abs=1e-4), name
        assert len(row["prompts"]) == len(places)
        if len(places) > 1:
            low, high = row["tokens_per_second_low"], row["tokens_per_second_high"]
            assert low <= row["tokens_per_second"] * 1.001
            assert high >= row["tokens_per_second"] * 0.999
        if arm == "none":
            assert row["speedup"] == row["speedup_with_prefill"] == 1.0
            assert row["speedup_low"] in (1.0, None)
        times = row["ms_per_token"]
        assert times["p50"] <= times["p90"] <= times["p99"]


def test_a_speedup_is_of_speeds_when_lengths_differ() -> None:
    curt = ScriptedArm("b", length=lambda prompt: 5)
    run = measure_speed(ScriptedArm("none"), [curt], [prompt(1), prompt(2)], same_length=False)
    row = rows_of(run)["rag", "b"]
    # Half of the tokens after the first in the same time; five of nine with the first.
    assert [row[f"speedup{end}"] for end in ("", "_low", "_high")] == [0.5] * 3
    assert row["speedup_median_of_prompts"] == 0.5
    assert row["speedup_with_prefill"] == pytest.approx(5 / 9, abs=1e-4)
    assert row["equal_share"] == 0


def test_acceptance_is_over_all_drafts_of_the_category() -> None:
    def samples(*accepted: int) -> list[Sample]:
        stats = counted(*accepted)
        return [Sample((1, 2, 3), 1.0, 2.0, stats=stats, mean_acceptance_length=9.0)]

    run = run_of(
        {
            "none": [[Sample((1, 2, 3), 1.0, 2.0, stats=counted())]] * 2,
            "fast": [samples(3, 0), samples(1, 1, 0)],
        },
        "xx",
    )
    row = rows_of(run)["x", "fast"]
    assert row["acceptance_by_depth"] == [0.6, 0.2, 0.2]
    assert row["acceptance"] == 0.6
    assert row["mean_acceptance_length"] == 2.0
    assert row["speculation"]["num_drafts"] == 5
    plain = rows_of(run)["x", "none"]
    assert (plain["acceptance_by_depth"], plain["acceptance"]) == ([], None)


def test_other_engines_tell_less_and_are_judged_by_it() -> None:
    def told(length: int, per_pass: float | None) -> list[Sample]:
        return [Sample(tuple(range(length)), None, 4.0, mean_acceptance_length=per_pass)]

    plain = [[Sample(tuple(range(length)), 1.0, 8.0, stats=counted())] for length in (7, 13)]
    run = run_of({"none": plain, "peer": [told(7, 2.0), told(13, 4.0)]}, "xx")
    row = rows_of(run)["x", "peer"]
    assert row["mean_acceptance_length"] == 18 / 6  # 3 passes of 2 tokens, 3 of 4
    assert row["speedup"] == 2.0
    assert row["prefill_ms"] is row["speedup_with_prefill"] is row["speculation"] is None
    assert row["ms_per_token"] == {"mean": 0.4444, "p50": None, "p90": None, "p99": None}
    mute = run_of({"none": plain, "peer": [told(7, None), told(13, None)]}, "xx")
    assert rows_of(mute)["x", "peer"]["mean_acceptance_length"] is None


def test_a_planted_difference_is_told_with_its_margin() -> None:
    prompts = [prompt(10, "x"), prompt(20, "y")]
    other = ScriptedArm("b", wrong_at=lambda prompt, call: 4 if prompt == 20 else -1)
    run = measure_speed(ScriptedArm("none"), [other], prompts)
    rows = rows_of(run)
    assert rows["x", "b"]["first_differences"] == []
    assert rows["y", "b"]["first_differences"] == [
        {"id": "q20", "position": 4, "margin": 0.05, "tokens": (24, 999)}
    ]
    row = rows["all", "b"]
    assert (row["num_equal_to_plain"], row["equal_share"]) == (1, 0.5)
    assert [told["equal"] for told in row["prompts"]] == [True, False]


def test_an_arm_that_failed_is_held_against_the_prompts_that_it_did() -> None:
    prompts = [prompt(10, "x"), prompt(20, "x"), prompt(30, "y")]
    plain = ScriptedArm("none", times=lambda prompt, call: 10.0 * prompt)
    other = ScriptedArm("b", times=lambda prompt, call: 5.0 * prompt, fails_at=2)
    run = measure_speed(plain, [other], prompts, rounds=1, warm_ups=1)
    figures = speed_figures(run)
    rows = {(row["category"], row["drafter"]): row for row in figures["results"]}
    assert rows["x", "none"]["num_prompts"] == 2
    assert rows["x", "b"]["num_prompts"] == rows["all", "b"]["num_prompts"] == 1
    assert rows["x", "b"]["speedup"] == rows["all", "b"]["speedup"] == 2.0
    assert ("y", "b") not in rows
    assert figures["failed"] == [{"arm": "b", "prompt_id": "q20", "message": "the engine is gone"}]
    assert rows["x", "b"]["peak_memory_mb"] is None


def test_answers_of_one_token_have_no_speed_to_compare() -> None:
    one = [[Sample((5,), 3.0, 0.0, stats=counted())]]
    row = rows_of(run_of({"none": one, "b": one}, "x"))["x", "b"]
    names = ("tokens_per_second", "speedup", "speedup_low", "speedup_median_of_prompts")
    assert [row[name] for name in names] == [None] * 4
    assert row["ms_per_token"] == dict.fromkeys(("mean", "p50", "p90", "p99"))
    assert row["speedup_with_prefill"] == 1.0


def test_a_category_that_is_called_all_is_counted_once() -> None:
    run = measure_speed(ScriptedArm("none"), [], [prompt(1, "all"), prompt(2, "x")])
    counts = {key: row["num_prompts"] for key, row in rows_of(run).items()}
    assert counts == {("x", "none"): 1, ("all", "none"): 2}


def test_acceptance_by_task_stands_beside_what_is_usual() -> None:
    prompts = [prompt(1, "x", "code"), prompt(2, "y", "code"), prompt(3, "y")]
    run = measure_speed(
        ScriptedArm("none"), [ScriptedArm("b"), ScriptedArm("c", own=False)], prompts
    )
    found = speed_figures(run)["tasks"]
    assert {row["drafter"] for row in found} == {"none", "b"}  # scripted arms draft, all in vain
    assert [row for row in found if row["drafter"] == "b"] == [
        {
            "task": "code", "drafter": "b", "acceptance": 0.0, "num_drafts": 16,
            "usual_low": 0.85, "usual_high": 0.92,
        }
    ]  # fmt: skip


def test_costs_and_left_out_questions_are_told() -> None:
    run = measure_speed(ScriptedArm("none"), [], [prompt(1)])
    figures = speed_figures(run, costs=PassCosts((1, 2), (1.0, 1.7)), left_out=["q9"])
    assert figures["costs"] == {"num_nodes": [1, 2], "relative": [1.0, 1.7]}
    assert figures["left_out"] == ["q9"]
    assert speed_figures(run)["costs"] is None
