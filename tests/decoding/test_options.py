"""Every option of an answer, through the whole loop: alike for all drafters, and as defined."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from transformers import LogitsProcessorList
from transformers.generation.logits_process import (
    LogitsProcessor,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    SuppressTokensAtBeginLogitsProcessor,
)

from specrag.decoding.drafter import Drafter
from specrag.decoding.generator import Generation, SpeculativeGenerator
from specrag.decoding.sampling import SamplingParams
from specrag.drafters.suffix import SuffixDrafter
from tests.decoding.scripts import (
    CONFIG,
    TOKENIZER,
    VOCAB,
    Answer,
    ScriptedDrafter,
    SilentDrafter,
    finish,
    knowing,
    open_session,
    request,
    target,
)


class Lowers(LogitsProcessor):  # type: ignore[misc]
    """Writes into the scores that it is given, as some users' processors do."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores[:, int(input_ids[0, -1])] -= 3.0
        return scores


OPTIONS: dict[str, dict[str, Any]] = {
    "min_tokens": {"min_tokens": 6},
    "min_tokens, sampled": {"min_tokens": 6, "temperature": 1.5},
    "stop tokens held off": {"min_tokens": 5, "stop_token_ids": tuple(range(1, 9))},
    "bias": {"logit_bias": {3: 4.0, 4: -float("inf"), 9: 1.0}},
    "presence": {"presence_penalty": 1.5, "temperature": 0.7},
    "frequency": {"frequency_penalty": 0.8},
    "all": {
        "presence_penalty": -0.5,
        "frequency_penalty": 0.7,
        "repetition_penalty": 1.2,
        "min_tokens": 3,
        "logit_bias": {2: 2.0},
        "temperature": 1.2,
        "top_p": 0.9,
        "top_k": 12,
        "top_logprobs": 2,
    },
    "top_logprobs": {"top_logprobs": 4, "temperature": 1.0},
    "more top_logprobs than tokens": {"top_logprobs": 99},
}
PROCESSORS: dict[str, Callable[[], list[LogitsProcessor]]] = {
    "none": list,
    "no repetition": lambda: [NoRepeatNGramLogitsProcessor(2)],
    "two": lambda: [Lowers(), NoBadWordsLogitsProcessor([[5], [6, 7]], eos_token_id=0)],
}
DRAFTERS: dict[str, Callable[[Sequence[Any]], Drafter]] = {
    "suffix": lambda asked: SuffixDrafter(),
    "trees": lambda asked: ScriptedDrafter(knowing(asked)),
}


def batch(options: dict[str, Any], processors: str) -> list[Any]:
    return [
        request(number, processors=made(processors), **{"max_tokens": 12} | options)
        for number in range(4)
    ]


@cache
def made(processors: str) -> tuple[LogitsProcessor, ...]:
    return tuple(PROCESSORS[processors]())


@cache
def plain(options: str, processors: str) -> tuple[list[Answer], list[Any]]:
    session = open_session(SilentDrafter(), batch(OPTIONS[options], processors))
    return finish(session), [row.top_logprobs for row in session.rows]


@pytest.mark.parametrize("processors", PROCESSORS)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_options_mean_the_same_for_every_drafter(
    drafter: str, options: str, processors: str
) -> None:
    asked = batch(OPTIONS[options], processors)
    session = open_session(DRAFTERS[drafter](asked), asked)
    found = finish(session)
    expected, tops = plain(options, processors)

    assert found == expected
    for row, top in zip(session.rows, tops, strict=True):
        assert len(row.top_logprobs) == (len(row.token_ids) if top else 0)
        for ours, theirs in zip(row.top_logprobs, top, strict=True):
            assert [token for token, _ in ours] == [token for token, _ in theirs]
            values = [value for _, value in theirs]
            assert [value for _, value in ours] == pytest.approx(values, abs=1e-5)


@pytest.mark.parametrize("drafter", ["none", "suffix"])
@pytest.mark.parametrize("count", [1, 3])
def test_top_logprobs_are_those_of_a_plain_forward(drafter: str, count: int) -> None:
    generator = SpeculativeGenerator(target(), TOKENIZER, drafter, CONFIG)
    params = SamplingParams(max_tokens=12, temperature=1.0, seed=3, top_logprobs=count, min_p=0.01)
    prompt = [4, 5, 6, 4, 5]
    found = generator.generate(prompt, params)
    assert isinstance(found, Generation)
    with torch.inference_mode():
        text = torch.tensor([[*prompt, *found.token_ids]])
        log_probs = torch.log_softmax(target().model(text, use_cache=False).logits[0], -1)
    rows = log_probs[len(prompt) - 1 : -1]

    assert len(found.top_logprobs) == len(found.token_ids)
    for top, token, logprob, row in zip(
        found.top_logprobs, found.token_ids, found.logprobs, rows, strict=True
    ):
        expected = row.topk(count)
        assert [t for t, _ in top] == expected.indices.tolist()
        assert [value for _, value in top] == pytest.approx(expected.values.tolist(), abs=1e-5)
        assert logprob == pytest.approx(float(row[token]), abs=1e-5)


@pytest.mark.parametrize(
    "processors",
    [
        lambda: [NoRepeatNGramLogitsProcessor(2)],
        lambda: [NoBadWordsLogitsProcessor([[5], [9], [12], [6, 7]], eos_token_id=0)],
        lambda: [SuppressTokensAtBeginLogitsProcessor([*range(2, 12)], 3)],
        lambda: [Lowers(), NoRepeatNGramLogitsProcessor(3)],
    ],
)
def test_custom_processors_act_as_in_transformers_generate(
    processors: Callable[[], list[LogitsProcessor]],
) -> None:
    changed = 0
    for number in range(6):
        penalty = 1.0 if number % 2 else 1.3
        params = SamplingParams(max_tokens=14, repetition_penalty=penalty)
        prompt = request(number).prompt_ids
        ids = torch.tensor([prompt if len(prompt) > 2 else (*prompt, 1)])
        if isinstance(processors()[0], SuppressTokensAtBeginLogitsProcessor):
            ids = ids[:, :3]
        expected = target().model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=14,
            repetition_penalty=penalty,
            logits_processor=LogitsProcessorList(processors()),
        )
        wanted = expected[0, ids.shape[1] :].tolist()
        for drafter in (SilentDrafter(), SuffixDrafter()):
            generator = SpeculativeGenerator(target(), TOKENIZER, drafter, CONFIG)
            found = generator.generate(ids[0].tolist(), params, logits_processors=processors())
            assert isinstance(found, Generation)
            assert list(found.token_ids) == wanted
        bare = generator.generate(ids[0].tolist(), params)
        assert isinstance(bare, Generation)
        changed += list(bare.token_ids) != wanted
    assert changed


def test_nothing_ends_an_answer_before_its_least_length() -> None:
    params = SamplingParams(max_tokens=30, stop_token_ids=(1, 2, 3), temperature=2.0)
    generator = SpeculativeGenerator(target(), TOKENIZER, "suffix", CONFIG)
    short = 0
    for seed in range(12):
        free, held = (
            generator.generate([4, 5], dataclasses.replace(params, seed=seed, min_tokens=least))
            for least in (0, 8)
        )
        assert isinstance(free, Generation)
        assert isinstance(held, Generation)
        short += len(free.token_ids) < 8
        # The token that ends an answer is the one behind the least length, at the earliest.
        assert len(held.token_ids) >= 9
        assert not {0, 1, 2, 3} & set(held.token_ids[:8])
    assert short > 2


@pytest.mark.parametrize("drafter", ["none", "suffix"])
def test_biases_force_and_forbid_tokens(drafter: str) -> None:
    generator = SpeculativeGenerator(target(), TOKENIZER, drafter, CONFIG)
    forced = generator.generate([4, 5], SamplingParams(max_tokens=9, logit_bias={7: 1000.0}))
    forbidden = {token: -float("inf") for token in range(VOCAB) if token not in (8, 9)}
    either = generator.generate(
        [4, 5], SamplingParams(max_tokens=20, temperature=5.0, seed=1, logit_bias=forbidden)
    )
    assert isinstance(forced, Generation)
    assert isinstance(either, Generation)
    assert forced.token_ids == (7,) * 9
    assert set(either.token_ids) == {8, 9}
    # Log-probabilities stay those of the model, whatever was done to its scores.
    assert all(value > -float("inf") for value in either.logprobs)
    assert min(forced.logprobs) < -0.5


@pytest.mark.parametrize("kind", ["presence_penalty", "frequency_penalty"])
def test_penalties_make_an_answer_repeat_less_and_rewards_more(kind: str) -> None:
    generator = SpeculativeGenerator(target(), TOKENIZER, "suffix", CONFIG)
    distinct = []
    for value in (-2.0, 0.0, 2.0):
        options: dict[str, Any] = {kind: value}
        params = SamplingParams(max_tokens=20, temperature=1.0, ignore_eos=True, **options)
        answers = [
            generator.generate([4, 5, 6], dataclasses.replace(params, seed=seed))
            for seed in range(4)
        ]
        distinct.append(sum(len(set(a.token_ids)) for a in answers if isinstance(a, Generation)))
    assert distinct[0] < distinct[1] < distinct[2]
