"""The choice of tokens against transformers' own processors, and its randomness."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from transformers import GenerationConfig
from transformers.generation.logits_process import LogitsProcessorList

from specrag.decoding.sampling import SamplingParams, TokenHistory, TokenSampler, uniform
from specrag.errors import ConfigError
from specrag.models.tiny import tiny_target

VOCAB, DRAWS = 16, 50_000
MODEL = tiny_target(vocab_size=VOCAB).model
HISTORY = torch.tensor([1, 2, 3, 2])

logit_lists = st.lists(st.floats(-12, 12, width=32), min_size=VOCAB, max_size=VOCAB)
histories = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=8)
sampled_params = st.builds(
    SamplingParams,
    temperature=st.one_of(st.just(1.0), st.floats(0.05, 3.0)),
    top_p=st.one_of(st.just(1.0), st.floats(0.01, 1.0)),
    top_k=st.integers(0, VOCAB + 4),
    min_p=st.one_of(st.just(0.0), st.floats(0.0, 1.0)),
    repetition_penalty=st.one_of(st.just(1.0), st.floats(0.5, 2.0)),
    seed=st.integers(-(2**70), 2**70),
)


def generate_processors(params: SamplingParams) -> LogitsProcessorList:
    """The processors that transformers' ``generate`` itself builds for the same parameters."""
    sampling: dict[str, Any] = {}
    if not params.is_greedy:
        sampling = {
            "do_sample": True,
            "temperature": params.temperature,
            "top_k": params.top_k,
            "top_p": params.top_p,
            "min_p": params.min_p,
        }
    config = GenerationConfig(repetition_penalty=params.repetition_penalty, **sampling)
    found: LogitsProcessorList = MODEL._get_logits_processor(
        config, input_ids_seq_length=4, logits_processor=LogitsProcessorList(), device="cpu"
    )
    return found


@given(params=sampled_params, logits=logit_lists, history=histories, greedy=st.booleans())
@settings(max_examples=150, deadline=None)
def test_processing_equals_that_of_transformers_generate(
    params: SamplingParams, logits: list[float], history: list[int], greedy: bool
) -> None:
    if greedy:
        params = dataclasses.replace(params, temperature=0.0)
    row, before = torch.tensor(logits), torch.tensor(history)
    expected = generate_processors(params)(before.unsqueeze(0), row.clone().unsqueeze(0))[0]
    original = row.clone()

    assert torch.equal(TokenSampler(params).process(row, before), expected)
    assert torch.equal(row, original)  # the caller's logits are not touched


@given(params=sampled_params, logits=logit_lists, history=histories)
@settings(max_examples=60, deadline=None)
def test_probabilities_are_the_softmax_of_the_processed_scores(
    params: SamplingParams, logits: list[float], history: list[int]
) -> None:
    row, before = torch.tensor(logits), torch.tensor(history)
    probs = TokenSampler(params).target_probs(row, before)
    scores = generate_processors(params)(before.unsqueeze(0), row.clone().unsqueeze(0))[0].tolist()
    weights = [math.exp(score - max(scores)) for score in scores]

    assert probs.dtype == torch.float64
    assert probs.tolist() == pytest.approx([w / math.fsum(weights) for w in weights], abs=1e-12)


@given(params=sampled_params, logits=logit_lists, position=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_a_choice_depends_on_logits_history_seed_and_position_only(
    params: SamplingParams, logits: list[float], position: int
) -> None:
    row = torch.tensor(logits)
    used, fresh = TokenSampler(params), TokenSampler(params)
    for other in range(3):
        used.choose(row.flip(0), HISTORY, other)

    assert used.choose(row, HISTORY, position) == fresh.choose(row, HISTORY, position)


@given(params=sampled_params, logits=logit_lists, position=st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_a_token_of_probability_zero_is_never_chosen(
    params: SamplingParams, logits: list[float], position: int
) -> None:
    sampler, row = TokenSampler(params), torch.tensor(logits)

    assert sampler.target_probs(row, HISTORY)[sampler.choose(row, HISTORY, position)] > 0


@pytest.mark.parametrize("threshold", [0.0, 0.5, 1.0 - 2.0**-53, 1.0])
@pytest.mark.parametrize("allowed", [[5], [0], [15], [3, 9], [0, 15]])
def test_the_extreme_thresholds_choose_allowed_tokens(
    threshold: float, allowed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # 1.0 stands for the largest number below it, times a sum that rounding has left below 1.
    monkeypatch.setattr("specrag.decoding.sampling.uniform", lambda seed, position: threshold)
    logits = torch.full((VOCAB,), float("-inf"))
    logits[allowed] = 1.0
    expected = allowed[min(int(threshold * len(allowed)), len(allowed) - 1)]

    assert TokenSampler(SamplingParams(temperature=1.0)).choose(logits, HISTORY, 0) == expected


@pytest.mark.parametrize("options", [{"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}])
def test_a_truncation_to_one_token_is_greedy(options: dict[str, Any]) -> None:
    rng = random.Random(0)
    sampler = TokenSampler(SamplingParams(temperature=2.0, seed=1, **options))
    for position in range(50):
        logits = torch.tensor([rng.gauss(0, 2) for _ in range(VOCAB)])

        assert sampler.choose(logits, HISTORY, position) == int(logits.argmax())


def spread_logits() -> torch.Tensor:
    return torch.tensor([0.3 * ((7 * i) % VOCAB) - 2.0 for i in range(VOCAB)])


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.5, repetition_penalty=1.3, seed=7),
        SamplingParams(temperature=0.8, top_k=9, top_p=0.95, min_p=0.02, seed=8),
    ],
    ids=["whole", "truncated"],
)
@pytest.mark.parametrize("varied", ["position", "seed"])
def test_choices_follow_the_target_probabilities(
    params: SamplingParams, varied: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits, sampler = spread_logits(), TokenSampler(params)
    probs = sampler.target_probs(logits, HISTORY)
    # The same for each draw, and slow: computed once.
    monkeypatch.setattr(TokenSampler, "target_probs", lambda self, logits, history: probs)
    chosen = []
    for draw in range(DRAWS):
        if varied == "seed":
            sampler.seed = draw
        chosen.append(sampler.choose(logits, HISTORY, draw if varied == "position" else 100))
    counts = torch.bincount(torch.tensor(chosen), minlength=VOCAB)
    allowed = probs > 0

    assert int(allowed.sum()) == (VOCAB if params.top_k == 0 else 7)
    assert int(counts[~allowed].sum()) == 0
    found = stats.chisquare(counts[allowed].numpy(), (probs[allowed] * DRAWS).numpy())
    assert found.pvalue > 1e-3


@pytest.mark.parametrize(
    "numbers",
    [
        [uniform(7, position) for position in range(DRAWS)],
        [uniform(seed, 7) for seed in range(DRAWS)],
        [uniform(seed, 40 - seed) for seed in range(-DRAWS // 2, DRAWS // 2)],
    ],
    ids=["positions", "seeds", "both"],
)
def test_uniform_numbers_are_uniform_and_neighbours_unrelated(numbers: list[float]) -> None:
    assert all(0.0 <= number < 1.0 for number in numbers)
    bins = torch.bincount((torch.tensor(numbers, dtype=torch.float64) * 100).long(), minlength=100)
    assert stats.chisquare(bins.numpy()).pvalue > 1e-3
    for lag in (1, 2, 16):
        assert stats.pearsonr(numbers[:-lag], numbers[lag:]).pvalue > 1e-3
    pairs = [10 * int(10 * a) + int(10 * b) for a, b in zip(numbers, numbers[1:], strict=False)]
    grid = torch.bincount(torch.tensor(pairs[::2]), minlength=100)
    assert stats.chisquare(grid.numpy()).pvalue > 1e-3


def test_no_two_draws_share_a_number() -> None:
    numbers = {uniform(seed, position) for seed in range(200) for position in range(200)}

    assert len(numbers) == 200 * 200


def test_an_answer_without_a_seed_gets_one_of_its_own_that_can_be_used_again() -> None:
    samplers = [TokenSampler(SamplingParams(temperature=1.0)) for _ in range(20)]

    assert len({sampler.seed for sampler in samplers}) == 20
    again = TokenSampler(SamplingParams(temperature=1.0, seed=samplers[0].seed))
    chosen = [samplers[0].choose(spread_logits(), HISTORY, position) for position in range(20)]
    assert [again.choose(spread_logits(), HISTORY, position) for position in range(20)] == chosen


def test_greedy_takes_the_largest_logit_after_penalties() -> None:
    logits = torch.zeros(VOCAB)
    logits[2], logits[5] = 3.0, 2.0
    plain, penal = (
        TokenSampler(SamplingParams(repetition_penalty=penalty)) for penalty in (1.0, 2.0)
    )

    assert (plain.is_plain_argmax, penal.is_plain_argmax) == (True, False)
    assert (plain.choose(logits, HISTORY, 4), penal.choose(logits, HISTORY, 4)) == (2, 5)
    assert penal.target_probs(logits, HISTORY).argmax() == 5
    assert penal.target_probs(logits, HISTORY).sum() == 1


def test_logits_of_low_precision_are_processed_in_full_precision() -> None:
    logits = spread_logits().bfloat16()
    sampler = TokenSampler(SamplingParams(temperature=0.7, top_p=0.9))

    scores = sampler.process(logits, HISTORY)
    assert scores.dtype == torch.float32
    assert torch.equal(scores, sampler.process(logits.float(), HISTORY))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("top_p", -1.0),
        ("top_p", math.nan),
        ("top_k", -1),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("min_p", math.nan),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", -2.0),
        ("repetition_penalty", math.nan),
        ("max_tokens", 0),
        ("max_tokens", -5),
        ("stop", ("a", "")),
        ("stop", ""),
    ],
)
def test_a_bad_value_is_a_config_error_that_names_the_field(name: str, value: object) -> None:
    options: dict[str, Any] = {name: value}

    with pytest.raises(ConfigError, match=f"^{name} must be .*, got ") as caught:
        SamplingParams(**options)
    if not isinstance(value, str):
        assert repr(value) in caught.value.message


@pytest.mark.parametrize(
    ("given_stop", "kept"), [("end", ("end",)), (["a", "b"], ("a", "b")), ((), ())]
)
def test_stop_may_be_one_text_or_a_list(given_stop: Any, kept: tuple[str, ...]) -> None:
    params = SamplingParams(stop=given_stop, stop_token_ids=[3, 4])  # type: ignore[arg-type]

    assert params.stop == kept
    assert params.stop_token_ids == (3, 4)
    hash(params)


@given(
    prompt=histories,
    capacity=st.integers(0, 4),
    steps=st.lists(st.one_of(st.integers(0, 9), st.integers(-5, -1)), max_size=20),
)
@settings(max_examples=60, deadline=None)
def test_a_history_is_a_list_that_grows_and_shrinks(
    prompt: list[int], capacity: int, steps: list[int]
) -> None:
    history, expected = TokenHistory(prompt, capacity), list(prompt)
    for step in steps:
        if step >= 0:
            history.append(step)
            expected.append(step)
        else:
            history.truncate(len(expected) + step + 3)  # sometimes longer than it is
            expected = expected[: max(0, len(expected) + step + 3)]
        if not expected:
            return
        assert history.view().tolist() == expected
        assert history.length == len(expected)
