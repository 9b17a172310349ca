"""Acceptance read from the JSON that commands print, whatever part of it is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specrag.decoding.budget import PassCosts
from specrag.decoding.drafter import named_drafter
from specrag.decoding.generator import SpeculativeGenerator
from specrag.decoding.stats import DecodingStats
from specrag.decoding.tree import DraftTree
from specrag.errors import InputError
from specrag.evaluation.measured_acceptance import MeasuredAcceptance, load_acceptance
from specrag.evaluation.reports.report import Report
from specrag.evaluation.speed.engine_arm import engine_arms
from specrag.evaluation.speed.figures import speed_figures
from specrag.evaluation.speed.measure import measure_speed
from specrag.evaluation.speed.prompts import SpeedPrompt
from specrag.models.tiny import tiny_target, tiny_tokenizer
from tests.evaluation.speed.scripted import ScriptedArm

PER_POS = {"num_accepted_tokens_per_pos": [60, 30, 24]}


def load(content: Any, folder: Path) -> list[MeasuredAcceptance]:
    path = folder / "figures.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return load_acceptance(path)


def test_acceptance_by_depth_is_of_the_drafts_that_came_there(tmp_path: Path) -> None:
    (found,) = load({"drafter": "suffix", "num_drafts": 100, **PER_POS}, tmp_path)
    assert found.by_depth == pytest.approx((0.6, 0.5, 0.8))
    assert found.alpha == pytest.approx(114 / 190)
    assert (found.label, found.basis, found.num_rounds) == ("suffix", "num_drafts", 100)


def test_the_counters_of_drafts_give_the_acceptance_that_made_them(tmp_path: Path) -> None:
    """Through the real counters: 2000 chains of 4, of which 3 in 4 tokens are right, in turn."""
    stats, turn = DecodingStats(), 0
    for _ in range(2000):
        accepted = 0
        while accepted < 4:
            turn += 1
            if turn % 4 == 0:
                break
            accepted += 1
        stats.record(DraftTree.chain([1, 2, 3, 4]), range(accepted), accepted + 1)
    counts = {
        "num_drafts": stats.num_drafts,
        "num_accepted_tokens_per_pos": stats.num_accepted_tokens_per_pos,
    }
    (found,) = load({"speculation": counts}, tmp_path)
    assert found.alpha == pytest.approx(0.75, abs=0.001)


@pytest.mark.parametrize(
    "figures",
    [
        {"num_passes": 200},
        {"num_tokens": 320, "num_prompts": 6},
        {"mean_acceptance_length": 1 + 114 / 200},
    ],
)
def test_without_the_number_of_drafts_passes_must_do(
    figures: dict[str, Any], tmp_path: Path
) -> None:
    (found,) = load({**figures, **PER_POS}, tmp_path)
    assert (found.basis, found.num_rounds) == ("num_passes", 200)
    assert found.by_depth[0] == pytest.approx(0.3)


def test_a_mean_acceptance_length_alone_is_a_lower_bound(tmp_path: Path) -> None:
    (found,) = load({"mean_acceptance_length": 2.5}, tmp_path)
    assert found.by_depth == pytest.approx((0.6,))
    assert found.basis == "mean_acceptance_length"


def test_depths_that_few_drafts_came_to_say_nothing(tmp_path: Path) -> None:
    counts = {"num_drafts": 100, "num_accepted_tokens_per_pos": [50, 12, 3, 3, 3]}
    (found,) = load(counts, tmp_path)
    # The depths beyond share the acceptance over all depths; 3 of 3 would promise too much.
    assert found.by_depth == pytest.approx((0.5, 0.24, 0.25, 71 / 168))


@pytest.mark.parametrize(
    ("figures", "share"),
    [
        ({"num_drafts": 100, "num_passes": 400}, 0.25),
        ({"num_drafts": 100, "num_tokens": 520, "num_prompts": 6}, 0.25),
        ({"num_drafts": 100}, 1.0),
        ({"num_passes": 400}, 1.0),
    ],
)
def test_the_share_of_passes_with_a_draft(
    figures: dict[str, int], share: float, tmp_path: Path
) -> None:
    assert load({**figures, **PER_POS}, tmp_path)[0].coverage == share


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """A report of two categories: plain decoding, two drafters, and another engine."""
    generator = SpeculativeGenerator(tiny_target(vocab_size=96), tiny_tokenizer(96), "none")
    prompts = [
        SpeedPrompt(text, category, None, tuple(generator.prompt_ids(text)))
        for text, category in (("abc abc abc abc", "rag"), ("de de de de", "qa"))
    ]
    drafters = {name: named_drafter(name) for name in ("suffix", "prompt_lookup")}
    plain, arms = engine_arms(generator, drafters)
    peer = ScriptedArm("peer:x", own=False)
    run = measure_speed(plain, [*arms, peer], prompts, max_tokens=40, rounds=1)
    figures = speed_figures(run)
    return json.loads(json.dumps(Report("speed", "", {}, figures).to_dict()))  # type: ignore[no-any-return]


def test_all_drafters_of_a_bench_are_read_but_no_other_arm(
    report: dict[str, Any], tmp_path: Path
) -> None:
    found = load(report, tmp_path)
    labels = {f"{d}, {c}" for d in ("suffix", "prompt_lookup") for c in ("rag", "qa", "all")}
    assert {item.label for item in found} <= labels
    assert [item.label for item in found[:2]] == ["suffix, all", "prompt_lookup, all"]
    for item in found:
        assert all(0 <= rate <= 1 for rate in item.by_depth)
        assert item.basis == "num_drafts"
        assert item.speedup is not None
        assert item.mean_acceptance_length is not None


def test_the_sum_over_one_category_is_not_read_twice(
    report: dict[str, Any], tmp_path: Path
) -> None:
    rows = [row for row in report["figures"]["results"] if row["category"] != "qa"]
    found = load({**report, "figures": {"results": rows}}, tmp_path)
    assert found
    assert all(item.label.endswith(", rag") for item in found)


def test_rows_alone_are_read_like_a_report(report: dict[str, Any], tmp_path: Path) -> None:
    assert load({"results": report["figures"]["results"]}, tmp_path) == load(report, tmp_path)


def test_times_give_the_cost_of_drafting(tmp_path: Path) -> None:
    content = {
        "drafter": "draft",
        "speculation": {"num_drafts": 100, "num_passes": 100, "num_draft_tokens": 300, **PER_POS},
        "timings": {"draft_ms": 900.0, "verify_ms": 3000.0},
    }
    (found,) = load(content, tmp_path)
    # 3 ms a drafted token; passes of 4 nodes took 30 ms, so one of one node takes 20.
    assert found.epsilon(PassCosts((1, 4), (1.0, 1.5))) == pytest.approx(0.15)
    assert found.epsilon(None) == pytest.approx(0.1)
    del content["timings"]
    assert load(content, tmp_path)[0].epsilon(None) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot read"),
        ("[1]", "no statistics"),
        ({"results": [3]}, "no statistics"),
        ({}, "has neither num_accepted_tokens_per_pos nor"),
        ({"text": "x", "speculation": 3}, "'speculation' in .* is no object"),
        (PER_POS, "does not tell how many drafts"),
        ({"num_drafts": 10, **PER_POS}, r"num_drafts = 10, got \[60, 30, 24\]"),
        ({"num_drafts": 90, "num_accepted_tokens_per_pos": [3, 4]}, "must never rise"),
        ({"num_drafts": 90, "num_accepted_tokens_per_pos": ["x"]}, "cannot be used"),
        ({"num_drafts": 90, "num_accepted_tokens_per_pos": 7}, "cannot be used"),
        ({"num_drafts": 0, "num_accepted_tokens_per_pos": []}, "nothing was drafted"),
        ({"results": [{"drafter": "none", "mean_acceptance_length": 1.0}]}, "nothing was drafted"),
        ({"results": []}, "nothing was drafted"),
        ({"figures": {"results": []}}, "nothing was drafted"),
        ({"figures": {"results": [3]}}, "no statistics"),
        ({"figures": 3}, "has neither num_accepted_tokens_per_pos nor"),
    ],
)
def test_what_tells_nothing_is_refused(content: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        load(content, tmp_path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        load_acceptance(tmp_path / "gone.json")
