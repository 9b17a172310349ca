from __future__ import annotations

from typing import Any

import pytest

from specrag.decoding.budget import SpeculationConfig
from specrag.decoding.generator import SpeculativeGenerator
from specrag.decoding.sampling import SamplingParams
from specrag.errors import ConfigError
from specrag.evaluation.prompts import BenchPrompt
from specrag.evaluation.speed.measure import Measurement, measure_speed, speed_report
from specrag.models.target import TreePass
from specrag.models.tiny import tiny_target, tiny_tokenizer

PROMPTS = [
    BenchPrompt("1", "rag", "abc abc abc abc"),
    BenchPrompt("2", "rag", "hello hello hello"),
    BenchPrompt("3", "qa", "x y z"),
]


@pytest.fixture(scope="module")
def generator() -> SpeculativeGenerator:
    return SpeculativeGenerator(tiny_target(1), tiny_tokenizer(), "none")


@pytest.fixture(scope="module")
def measured(generator: SpeculativeGenerator) -> list[Measurement]:
    return measure_speed(generator, PROMPTS, ["suffix", "prompt_lookup"], max_tokens=24)


def test_every_category_and_drafter_is_measured(measured: list[Measurement]) -> None:
    pairs = [(m.category, m.drafter) for m in measured]
    assert pairs == [
        (category, drafter)
        for category in ("rag", "qa")
        for drafter in ("none", "suffix", "prompt_lookup")
    ]
    assert [len(m.num_tokens) for m in measured] == [2, 2, 2, 1, 1, 1]


def test_counters_are_those_of_the_generator(
    generator: SpeculativeGenerator, measured: list[Measurement]
) -> None:
    alone = SpeculativeGenerator(generator.target, generator.tokenizer, "suffix")
    prompt = [{"role": "user", "content": PROMPTS[2].text}]
    stats = alone.generate_batch([prompt], SamplingParams(max_tokens=24))[0].stats
    found = next(m for m in measured if (m.category, m.drafter) == ("qa", "suffix"))
    assert found.stats == stats


def test_the_report_states_ratios_to_plain_decoding(measured: list[Measurement]) -> None:
    rows = speed_report(measured)["results"]
    for row in rows:
        assert row["num_equal_to_plain"] == row["num_prompts"]
        if row["drafter"] == "none":
            assert row["speedup"] == row["speedup_with_prefill"] == 1.0
            assert row["mean_acceptance_length"] == 1.0
    drafted = [row["mean_acceptance_length"] for row in rows if row["drafter"] == "suffix"]
    assert max(drafted) > 1.0


def test_speeds_are_computed_from_sums() -> None:
    plain = Measurement("none", "rag", decode_ms=[100.0, 300.0], total_ms=[200.0, 400.0])
    fast = Measurement("suffix", "rag", decode_ms=[50.0, 100.0], total_ms=[150.0, 200.0])
    for measurement in (plain, fast):
        measurement.num_tokens = [11, 21]
    assert plain.tokens_per_second == pytest.approx(75.0)
    row = speed_report([plain, fast])["results"][1]
    assert row["speedup"] == pytest.approx(400 / 150, abs=1e-3)
    assert row["speedup_median_of_prompts"] == pytest.approx(2.5)
    assert row["speedup_with_prefill"] == pytest.approx(600 / 350, abs=1e-3)


def test_an_unknown_drafter_is_refused(generator: SpeculativeGenerator) -> None:
    with pytest.raises(ConfigError, match="did you mean 'suffix'"):
        measure_speed(generator, PROMPTS, ["sufix"])


def test_answers_of_one_token_have_no_speed_to_compare(generator: SpeculativeGenerator) -> None:
    prompts = [BenchPrompt("1", "rag", "abc abc abc")]
    found = measure_speed(generator, prompts, ["suffix"], max_tokens=1)
    assert [row["speedup"] for row in speed_report(found)["results"]] == [None, None]


def test_a_strict_run_is_compared_with_ordinary_plain_decoding(
    generator: SpeculativeGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = generator.target
    strict = SpeculationConfig(num_speculative_tokens=7, strict=True)
    widths: dict[int, int] = {}
    forward = target.forward

    def watched(tree_pass: TreePass, *rest: Any) -> Any:
        width = tree_pass.token_ids.shape[1]
        widths[width] = widths.get(width, 0) + 1
        return forward(tree_pass, *rest)

    monkeypatch.setattr(target, "forward", watched)
    arms = SpeculativeGenerator(target, generator.tokenizer, "none", strict)
    measured = measure_speed(arms, PROMPTS[:1], ["suffix"], max_tokens=12)

    assert set(widths) == {1, 8}
    assert [m.num_equal for m in measured] == [1, 1]
