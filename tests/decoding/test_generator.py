"""The generator: prompts of every kind, streams, and equality with transformers' generate."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from specrag.decoding.generator import Generation, SpeculativeGenerator, is_single
from specrag.decoding.sampling import SamplingParams
from specrag.decoding.tree import DraftTree
from specrag.errors import ConfigError, InputError
from specrag.loading import model_loading
from specrag.models.tiny import tiny_target, tiny_tokenizer

MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "why"}]
PARAMS = SamplingParams(max_tokens=12, seed=1)
FIELDS = ("text", "token_ids", "finish_reason", "num_prompt_tokens", "seed", "stats")


@cache
def generator_of(seed: int = 0, drafter: str = "suffix") -> SpeculativeGenerator:
    return SpeculativeGenerator(tiny_target(seed), tiny_tokenizer(), drafter)


def one(generator: SpeculativeGenerator, prompt: Any, params: SamplingParams) -> Generation:
    found = generator.generate(prompt, params)
    assert isinstance(found, Generation)
    return found


def many(generator: SpeculativeGenerator, prompts: Any, params: SamplingParams) -> list[Generation]:
    found = generator.generate(prompts, params)
    assert isinstance(found, list)
    return found


def same(first: Generation, second: Generation) -> bool:
    return all(getattr(first, name) == getattr(second, name) for name in FIELDS)


def random_prompt(seed: int, number: int) -> list[int]:
    rng = random.Random(f"{seed} {number}")
    return [rng.randrange(4, 64) for _ in range(rng.randint(1, 12))]


@cache
def transformers_answers(seed: int) -> list[list[int]]:
    """What transformers' own ``generate`` says to ten prompts."""
    answers = []
    for number in range(10):
        prompt = torch.tensor([random_prompt(seed, number)])
        answer = tiny_target(seed).model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=16
        )
        answers.append(answer[0, prompt.shape[1] :].tolist())
    return answers


@pytest.mark.parametrize("drafter", ["none", "prompt_lookup", "suffix"])
def test_greedy_answers_are_those_of_transformers_generate(drafter: str) -> None:
    accepted = 0
    for seed in range(5):
        generator = generator_of(seed, drafter)
        for number, expected in enumerate(transformers_answers(seed)):
            found = one(generator, random_prompt(seed, number), SamplingParams(max_tokens=16))
            assert list(found.token_ids) == expected
            assert found.finish_reason == ("stop" if expected[-1] == 0 else "length")
            accepted += found.stats.num_accepted_tokens
    assert (accepted > 30) == (drafter != "none")


def test_text_messages_and_ids_are_the_same_prompt() -> None:
    generator = generator_of()
    text = generator.tokenizer.chat_text(MESSAGES)
    answers = [
        one(generator, prompt, PARAMS)
        for prompt in (MESSAGES, text, generator.tokenizer.encode(text))
    ]

    assert same(answers[0], answers[1])
    assert same(answers[0], answers[2])
    assert answers[0].num_prompt_tokens == len(generator.tokenizer.encode(text))
    assert answers[0].text == generator.tokenizer.decode(answers[0].token_ids)


def test_a_batch_of_mixed_prompts_answers_each_as_alone() -> None:
    generator = generator_of()
    params = SamplingParams(max_tokens=12, temperature=1.0, seed=5)
    prompts: list[Any] = ["a text", MESSAGES, [7, 8, 9], "x"]
    batch = many(generator, prompts, params)

    for prompt, answer in zip(prompts, batch, strict=True):
        alone = one(generator, prompt, params)
        assert same(answer, alone)
        assert answer.logprobs == pytest.approx(alone.logprobs, abs=1e-4)


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ("text", True),
        ("", True),
        (MESSAGES, True),
        ([1, 2], True),
        ((1, 2), True),
        (["a", "b"], False),
        ([MESSAGES], False),
        ([[1, 2]], False),
        ([], False),
    ],
)
def test_one_prompt_is_told_from_a_list_of_prompts(prompts: Any, expected: bool) -> None:
    assert is_single(prompts) == expected


def test_no_prompts_get_no_answers() -> None:
    assert generator_of().generate([], PARAMS) == []


@pytest.mark.parametrize("prompt", ["", ["good", ""], [[]], [[5], []]])
def test_an_empty_prompt_is_an_input_error(prompt: Any) -> None:
    with pytest.raises(InputError, match="prompt is empty"):
        generator_of().generate(prompt, PARAMS)


def test_a_prompt_too_long_is_an_input_error() -> None:
    with pytest.raises(InputError, match="has 512 tokens; tiny-0 holds 512") as caught:
        generator_of().generate([5] * 512, PARAMS)
    assert "shorten the prompt" in str(caught.value.hint)


def test_greedy_is_the_default() -> None:
    generator = generator_of()
    answer = generator.generate([7, 8, 9])
    assert isinstance(answer, Generation)

    assert same(answer, one(generator, [7, 8, 9], SamplingParams(seed=answer.seed)))


def test_the_reported_seed_gives_the_same_answer_again() -> None:
    generator = generator_of()
    params = SamplingParams(max_tokens=20, temperature=1.5, ignore_eos=True)
    first, other = (one(generator, [7, 8, 9], params) for _ in range(2))
    again = one(
        generator,
        [7, 8, 9],
        SamplingParams(max_tokens=20, temperature=1.5, ignore_eos=True, seed=first.seed),
    )

    assert first.seed != other.seed
    assert first.token_ids != other.token_ids
    assert again.token_ids == first.token_ids


@pytest.mark.parametrize("stop", [(), ("i",), ("zq", "e")])
def test_the_stream_joined_is_the_answer(stop: tuple[str, ...]) -> None:
    for number in range(20):
        generator, prompt = generator_of(number % 4), [4 + number, 5, 6]
        params = SamplingParams(max_tokens=25, stop=stop, temperature=1.2, seed=number)
        answer = one(generator, prompt, params)
        updates = list(generator.stream(prompt, params))

        assert "".join(update.text for update in updates) == answer.text
        assert sum((u.token_ids for u in updates), ()) == answer.token_ids
        assert [u.finish_reason for u in updates[:-1]] == [None] * (len(updates) - 1)
        assert updates[-1].finish_reason == answer.finish_reason
        text = generator.tokenizer.decode(answer.token_ids)
        ends = [text.find(s) for s in stop if s in text]
        assert answer.text == (text[: min(ends)] if ends else text)


def test_a_stream_closed_early_closes_the_drafter(scripted: Callable[..., Any]) -> None:
    drafter = scripted(lambda prompt, output, budget: DraftTree.chain([5, 6]))
    generator = SpeculativeGenerator(tiny_target(), tiny_tokenizer(), drafter)
    stream = generator.stream([7, 8], SamplingParams(max_tokens=30, ignore_eos=True))
    assert len(next(stream).token_ids) == 1
    next(stream)
    assert drafter.sessions[0].num_closed == 0
    stream.close()  # type: ignore[attr-defined]

    assert drafter.sessions[0].num_closed == 1
    assert list(stream) == []
    assert one(generator, [7, 8], PARAMS).token_ids  # the generator is as good as new


def test_a_drafter_that_fails_is_closed(scripted: Callable[..., Any]) -> None:
    def fail(*_: Any) -> DraftTree:
        raise RuntimeError("no idea")

    drafter = scripted(fail)
    generator = SpeculativeGenerator(tiny_target(), tiny_tokenizer(), drafter)
    with pytest.raises(RuntimeError, match="no idea"):
        generator.generate([7, 8], SamplingParams(max_tokens=9, ignore_eos=True))

    assert drafter.sessions[0].num_closed == 1


def test_passages_reach_the_drafter(scripted: Callable[..., Any]) -> None:
    target, seen = tiny_target(), []

    def copy(prompt: tuple[int, ...], output: tuple[int, ...], budget: Any) -> DraftTree:
        seen.append(prompt)
        return DraftTree()

    generator = SpeculativeGenerator(target, tiny_tokenizer(), scripted(copy))
    asked = generator.request("abc", PARAMS, passages=[[1, 2], (3,)], num_traced=2)

    assert asked.passages == ((1, 2), (3,))
    assert asked.num_traced == 2
    assert asked.prompt_ids == tuple(generator.tokenizer.encode("abc"))


def test_times_are_floats_that_are_not_negative() -> None:
    timings = one(generator_of(), [7, 8, 9], PARAMS).timings
    values = [timings.prefill_ms, timings.draft_ms, timings.verify_ms, timings.decode_ms]

    assert all(isinstance(value, float) and value >= 0 for value in values)


def test_an_unknown_drafter_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="sufix"):
        generator_of(drafter="sufix")


def test_a_model_folder_becomes_a_generator(tmp_path: Path, isolated_home: Path) -> None:
    target = tiny_target()
    with model_loading():
        target.model.save_pretrained(tmp_path / "model")
    tiny_tokenizer().backend.save_pretrained(tmp_path / "model")
    generator = SpeculativeGenerator.from_pretrained(str(tmp_path / "model"), dtype="float32")

    assert (
        one(generator, MESSAGES, PARAMS).token_ids
        == one(generator_of(), MESSAGES, PARAMS).token_ids
    )
    assert generator.drafter.name == "suffix"
    assert generator.costs is not None


SAMPLES = SamplingParams(max_tokens=10, temperature=1.2, seed=7, n=3)


def alone(params: SamplingParams) -> SamplingParams:
    return dataclasses.replace(params, n=1)


@pytest.mark.parametrize("drafter", ["none", "suffix"])
def test_the_first_of_several_samples_is_the_one_of_its_seed(drafter: str) -> None:
    generator = generator_of(2, drafter)
    found = one(generator, [7, 8, 9], SAMPLES)
    samples = found.samples

    assert samples[0] is found
    assert samples[1:] == found.others
    assert len(samples) == 3
    assert same(found, one(generator, [7, 8, 9], alone(SAMPLES)))
    assert len({sample.token_ids for sample in samples}) == 3
    assert found.seed == 7
    for sample in samples:
        again = dataclasses.replace(alone(SAMPLES), seed=sample.seed)
        assert same(sample, one(generator, [7, 8, 9], again))
        assert sample.num_prompt_tokens == 3
        assert sample.stats.num_tokens == len(sample.token_ids)
        assert sample.samples[0] is sample


def test_samples_without_a_seed_differ_and_greedy_ones_do_not() -> None:
    generator = generator_of(2)
    free = one(generator, [7, 8, 9], dataclasses.replace(SAMPLES, seed=None, temperature=30.0))
    greedy = one(generator, [7, 8, 9], SamplingParams(max_tokens=6, n=2))

    assert len({sample.seed for sample in free.samples}) == 3
    assert len({sample.token_ids for sample in free.samples}) > 1
    assert greedy.samples[0].token_ids == greedy.samples[1].token_ids


def test_a_batch_of_prompts_with_several_samples_evaluates_each_prompt_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = generator_of(2)
    seen: list[list[int]] = []
    real = generator.target.prefill

    def prefill(prompts: Any, *rest: Any, **options: Any) -> Any:
        seen.append([len(prompt) for prompt in prompts])
        return real(prompts, *rest, **options)

    monkeypatch.setattr(generator.target, "prefill", prefill)
    prompts = [[7, 8, 9], [5, 6, 7, 8, 9]]
    found = many(generator, prompts, SAMPLES)
    assert seen == [[3, 5]]

    monkeypatch.undo()
    for prompt, generation in zip(prompts, found, strict=True):
        expected = one(generator, prompt, SAMPLES)
        assert len(generation.samples) == 3
        for sample, other in zip(generation.samples, expected.samples, strict=True):
            assert same(sample, other)


def test_a_stream_gives_one_sample() -> None:
    with pytest.raises(ConfigError, match="got n=3"):
        next(generator_of().stream([7, 8], SAMPLES))


@pytest.mark.parametrize(
    "prompt", [5, {"role": "user", "content": "Hi"}, [4.5], [None], [[4.5]], None, ["Hi", 5]]
)
def test_what_is_no_prompt_is_an_input_error(prompt: Any) -> None:
    generator = SpeculativeGenerator(tiny_target(), tiny_tokenizer(), "none")
    with pytest.raises(InputError, match="a prompt is a text, a list of messages or a list of"):
        generator.generate(prompt)


def test_token_ids_may_come_from_numpy() -> None:
    generator = SpeculativeGenerator(tiny_target(), tiny_tokenizer(), "none")
    ids: Any = list(np.arange(10, 14))
    assert generator.prompt_ids(ids) == [10, 11, 12, 13]
