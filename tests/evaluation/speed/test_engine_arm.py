"""Arms of this engine decode as the generator does, whatever is timed or looked at."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from specrag.decoding.budget import PassCosts, SpeculationConfig
from specrag.decoding.drafter import named_drafter
from specrag.decoding.generator import SpeculativeGenerator
from specrag.decoding.sampling import SamplingParams
from specrag.errors import InputError
from specrag.evaluation.speed.arm import Sample
from specrag.evaluation.speed.engine_arm import EngineArm, engine_arms
from specrag.models.prefix_cache import PrefixCache
from specrag.models.target import TreePass
from specrag.models.tiny import tiny_target, tiny_tokenizer

DRAFTERS = ("none", "suffix", "prompt_lookup")


@pytest.fixture(scope="module")
def generator() -> SpeculativeGenerator:
    return SpeculativeGenerator(tiny_target(1), tiny_tokenizer(), "none")


@pytest.fixture(scope="module")
def arms(generator: SpeculativeGenerator) -> dict[str, EngineArm]:
    plain, others = engine_arms(generator, {name: named_drafter(name) for name in DRAFTERS})
    return {arm.name: arm for arm in (plain, *others)}


def prompt_of(generator: SpeculativeGenerator, text: str) -> list[int]:
    return generator.prompt_ids([{"role": "user", "content": text}])


@pytest.mark.parametrize("name", DRAFTERS)
def test_an_arm_decodes_as_the_generator_does(
    name: str, generator: SpeculativeGenerator, arms: dict[str, EngineArm]
) -> None:
    prompt = prompt_of(generator, "abc abc abc abc")
    alone = SpeculativeGenerator(generator.target, generator.tokenizer, name)
    told = alone.generate_batch([prompt], SamplingParams(max_tokens=40))[0]
    sample = arms[name].decode(prompt, 40)
    assert sample.token_ids == told.token_ids
    assert sample.stats == told.stats
    assert sample.mean_acceptance_length == told.stats.mean_acceptance_length


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_token_after_the_first_belongs_to_one_pass(
    name: str, generator: SpeculativeGenerator, arms: dict[str, EngineArm]
) -> None:
    sample = arms[name].decode(prompt_of(generator, "abc abc abc abc"), 40, 40)
    assert sample.stats is not None
    assert len(sample.step_ms) == len(sample.step_tokens) == sample.stats.num_passes
    assert sum(sample.step_tokens) == len(sample.token_ids) - 1 == 39
    assert sum(sample.step_ms) == pytest.approx(sample.decode_ms)
    assert min(sample.step_ms) > 0
    assert sample.prefill_ms is not None
    assert sample.prefill_ms > 0


def ending(generator: SpeculativeGenerator, arm: EngineArm) -> tuple[list[int], Sample]:
    """A prompt whose answer ends with an end token."""
    for size in range(2, 200):
        prompt = [4 + place % 7 for place in range(size)]
        sample = arm.decode(prompt, 60)
        if sample.token_ids[-1] in generator.target.eos_token_ids and len(sample.token_ids) > 3:
            return prompt, sample
    raise AssertionError("no prompt ends")


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_fixed_length_keeps_the_end_token_and_goes_past_it(
    name: str, generator: SpeculativeGenerator, arms: dict[str, EngineArm]
) -> None:
    prompt, ended = ending(generator, arms["none"])
    size = len(ended.token_ids)
    assert arms[name].decode(prompt, size, size).token_ids == ended.token_ids
    longer = arms[name].decode(prompt, size + 5, size + 5).token_ids
    assert (len(longer), longer[:size]) == (size + 5, ended.token_ids)


def test_margins_are_those_of_the_logits(
    generator: SpeculativeGenerator, arms: dict[str, EngineArm]
) -> None:
    prompt = prompt_of(generator, "hello there")
    seen = arms["none"].look(prompt, 12)
    assert seen.token_ids == arms["none"].decode(prompt, 12).token_ids
    assert len(seen.margins) == len(seen.token_ids)
    model: Any = generator.target.model  # type: ignore[attr-defined]
    with torch.inference_mode():
        ids = torch.tensor([prompt + list(seen.token_ids)])
        probs = model(ids).logits[0].softmax(-1)
    for place, margin in enumerate(seen.margins):
        first, second = probs[len(prompt) - 1 + place].topk(2).values.tolist()
        assert margin == pytest.approx(first - second, abs=1e-4)
    assert not arms["none"].decode(prompt, 12).margins


def test_nothing_is_kept_between_prompts(generator: SpeculativeGenerator) -> None:
    cache = PrefixCache(1 << 20)
    shared = SpeculativeGenerator(generator.target, generator.tokenizer, "none", prefix_cache=cache)
    arm = EngineArm(shared, "none")
    prompt = prompt_of(generator, "abc abc abc abc")
    for _ in range(2):
        sample = arm.decode(prompt, 5)
        assert sample.stats is not None
        assert sample.stats.num_cached_tokens == 0


def test_a_strict_run_is_held_against_ordinary_plain_decoding(
    generator: SpeculativeGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = generator.target
    widths: dict[str, set[int]] = {"none": set(), "suffix": set()}
    now = "none"
    forward = target.forward

    def watched(tree_pass: TreePass, *rest: Any) -> Any:
        widths[now].add(tree_pass.token_ids.shape[1])
        return forward(tree_pass, *rest)

    monkeypatch.setattr(target, "forward", watched)
    config = SpeculationConfig(num_speculative_tokens=7, strict=True)
    strict = SpeculativeGenerator(target, generator.tokenizer, "none", config)
    plain, (drafting,) = engine_arms(strict, {"suffix": named_drafter("suffix")})
    prompt = prompt_of(generator, "abc abc abc abc")
    answers = []
    for arm in (plain, drafting):
        now = arm.name
        answers.append(arm.decode(prompt, 12).token_ids)
    assert widths == {"none": {1}, "suffix": {8}}
    assert answers[0] == answers[1]


def test_costs_are_those_of_each_drafter(
    generator: SpeculativeGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def costs_of(target: Any, tokenizer: Any, drafter: Any, config: Any) -> PassCosts:
        asked.append(drafter.name)
        return PassCosts((1,), (1.0,))

    monkeypatch.setattr("specrag.evaluation.speed.engine_arm.costs_of", costs_of)
    drafters = {name: named_drafter(name) for name in DRAFTERS}
    engine_arms(generator, drafters)
    assert asked == []  # without measured costs every draft is let through
    own = SpeculativeGenerator(
        generator.target,
        generator.tokenizer,
        drafters["suffix"],
        costs=PassCosts((1,), (1.0,)),
    )
    engine_arms(own, drafters)
    assert asked == ["prompt_lookup"]


def test_an_arm_refuses_what_the_engine_refuses(arms: dict[str, EngineArm]) -> None:
    with pytest.raises(InputError, match="the prompt is empty"):
        arms["suffix"].decode([], 5)
    with pytest.raises(AssertionError, match="fixes a length"):
        arms["suffix"].decode([5], 5, 3)


def test_memory_is_that_of_the_process(arms: dict[str, EngineArm]) -> None:
    peak = arms["none"].peak_memory_mb()
    assert peak is not None
    assert 50 < peak < 1e6
    assert math.isclose(peak, arms["suffix"].peak_memory_mb() or 0, rel_tol=0.01)


def test_a_target_that_decodes_plainly_is_said_to(
    generator: SpeculativeGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(generator.target), "no_speculation", "it keeps a state", raising=False)
    assert EngineArm(generator, "none").details["decoded plainly"] == "it keeps a state"
