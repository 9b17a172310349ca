"""The choice of tokens against transformers' own processors, and its randomness."""

from __future__ import annotations

import dataclasses
import math
import random
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from transformers import GenerationConfig
from transformers.generation.logits_process import (
    LogitsProcessor,
    LogitsProcessorList,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
)

from specrag.decoding.noise import Stream
from specrag.decoding.sampling import SamplingParams, TokenHistory, TokenSampler
from specrag.errors import ConfigError, ModelError
from specrag.models.tiny import tiny_target

VOCAB, DRAWS, PROMPT = 16, 8_000, 4
MODEL = tiny_target(vocab_size=VOCAB).model
HISTORY = torch.tensor([1, 2, 3, 2])

logit_lists = st.lists(st.floats(-12, 12, width=32), min_size=VOCAB, max_size=VOCAB)
histories = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=10)
sampled_params = st.builds(
    SamplingParams,
    temperature=st.one_of(st.just(1.0), st.floats(0.05, 3.0)),
    top_p=st.one_of(st.just(1.0), st.floats(0.01, 1.0)),
    top_k=st.integers(0, VOCAB + 4),
    min_p=st.one_of(st.just(0.0), st.floats(0.0, 1.0)),
    repetition_penalty=st.one_of(st.just(1.0), st.floats(0.5, 2.0)),
    seed=st.integers(-(2**70), 2**70),
    presence_penalty=st.one_of(st.just(0.0), st.floats(-2, 2)),
    frequency_penalty=st.one_of(st.just(0.0), st.floats(-2, 2)),
    min_tokens=st.integers(0, 4),
    stop_token_ids=st.lists(st.integers(0, VOCAB - 1), max_size=2),
    # One token always stays allowed, so that there is something to choose.
    logit_bias=st.dictionaries(
        st.integers(5, VOCAB - 1), st.one_of(st.just(-math.inf), st.floats(-9, 9)), max_size=3
    ),
)
customs = st.lists(
    st.sampled_from(
        [
            SuppressTokensLogitsProcessor([3, 9]),
            NoRepeatNGramLogitsProcessor(2),
            RepetitionPenaltyLogitsProcessor(1.7),
        ]
    ),
    unique=True,
    max_size=2,
)
ENDS = (0, 4)


class Counting(LogitsProcessor):  # type: ignore[misc]
    """OpenAI's penalties by their formula, one token after the other."""

    def __init__(self, params: SamplingParams) -> None:
        self._params = params

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        found = scores.clone()
        for token, times in Counter(input_ids[0, PROMPT:].tolist()).items():
            found[0, token] -= self._params.presence_penalty
            found[0, token] -= self._params.frequency_penalty * times
        return found


def generate_processors(
    params: SamplingParams, custom: list[LogitsProcessor] | None = None
) -> LogitsProcessorList:
    """The processors that transformers' ``generate`` itself builds for the same parameters.

    It has no presence and frequency penalties. Ours come right before the end tokens are held
    off, which makes no difference to coming right after.
    """
    sampling: dict[str, Any] = {}
    if not params.is_greedy:
        sampling = {
            "do_sample": True,
            "temperature": params.temperature,
            "top_k": params.top_k,
            "top_p": params.top_p,
            "min_p": params.min_p,
        }
    bias = {(token,): value for token, value in dict(params.logit_bias).items()}
    config = GenerationConfig(
        repetition_penalty=params.repetition_penalty,
        sequence_bias=bias or None,
        min_new_tokens=params.min_tokens,
        **sampling,
    )
    ends = {*params.stop_token_ids, *(() if params.ignore_eos else ENDS)}
    config._eos_token_tensor = torch.tensor(sorted(ends))
    found: LogitsProcessorList = MODEL._get_logits_processor(
        config,
        input_ids_seq_length=PROMPT,
        logits_processor=LogitsProcessorList([Counting(params), *(custom or [])]),
        device="cpu",
    )
    return found


def sampler_of(params: SamplingParams, custom: list[LogitsProcessor] | None = None) -> TokenSampler:
    return TokenSampler(params, prompt_length=PROMPT, end_token_ids=ENDS, processors=custom or ())


@given(
    params=sampled_params,
    logits=logit_lists,
    history=histories,
    custom=customs,
    greedy=st.booleans(),
    ignore_eos=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_processing_equals_that_of_transformers_generate(
    params: SamplingParams,
    logits: list[float],
    history: list[int],
    custom: list[LogitsProcessor],
    greedy: bool,
    ignore_eos: bool,
) -> None:
    temperature = 0.0 if greedy else params.temperature
    params = dataclasses.replace(params, temperature=temperature, ignore_eos=ignore_eos)
    row, before = torch.tensor(logits), torch.tensor(history)
    theirs = generate_processors(params, custom)
    expected = theirs(before.unsqueeze(0), row.clone().unsqueeze(0))[0]
    original = row.clone()

    torch.testing.assert_close(
        sampler_of(params, custom).process(row, before), expected, rtol=0, atol=1e-6
    )
    assert torch.equal(row, original)  # the caller's logits are not touched


@given(params=sampled_params, logits=logit_lists, history=histories)
@settings(max_examples=60, deadline=None)
def test_probabilities_are_the_softmax_of_the_processed_scores(
    params: SamplingParams, logits: list[float], history: list[int]
) -> None:
    row, before = torch.tensor(logits), torch.tensor(history)
    probs = sampler_of(params).target_probs(row, before)
    scores = generate_processors(params)(before.unsqueeze(0), row.clone().unsqueeze(0))[0].tolist()
    weights = [math.exp(score - max(scores)) for score in scores]

    assert probs.dtype == torch.float64
    assert probs.tolist() == pytest.approx([w / math.fsum(weights) for w in weights], abs=1e-6)


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
    scores = sampler.process(logits, HISTORY)
    monkeypatch.setattr(TokenSampler, "process", lambda self, logits, history: scores)
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
        ("presence_penalty", 2.1),
        ("presence_penalty", math.nan),
        ("frequency_penalty", -2.1),
        ("min_tokens", -1),
        ("min_tokens", 257),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {1: math.nan}),
        ("logit_bias", {1: math.inf}),
        ("logit_bias", {"1": 1.0}),
        ("logit_bias", {True: 1.0}),
        ("logit_bias", {1: "much"}),
        ("logit_bias", [1, 2]),
        ("logit_bias", 3),
        ("top_logprobs", -1),
        ("n", 0),
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


@pytest.mark.parametrize(
    "bias", [{7: 2, 3: -math.inf}, [(7, 2.0), [3, -math.inf]], ((3, -math.inf), (7, 2.0))]
)
def test_a_bias_may_be_a_mapping_or_pairs_and_has_one_form(bias: Any) -> None:
    params = SamplingParams(logit_bias=bias)

    assert params.logit_bias == ((3, -math.inf), (7, 2.0))
    assert hash(params) == hash(dataclasses.replace(params))
    assert params == SamplingParams(logit_bias={3: -math.inf, 7: 2.0})


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_bias_on_a_token_that_the_model_lacks_is_refused(temperature: float) -> None:
    params = SamplingParams(temperature=temperature, logit_bias={2: 1.0, VOCAB: 1.0})
    sampler = TokenSampler(params)

    sampler.check(VOCAB + 1)
    for refused in (sampler.check, lambda size: sampler.choose(torch.zeros(size), HISTORY, 4)):
        with pytest.raises(ConfigError, match=f"token {VOCAB}, but the model has {VOCAB} tokens"):
            refused(VOCAB)


@pytest.mark.parametrize(
    ("options", "custom", "plain"),
    [
        ({}, [], True),
        ({"top_k": 3, "top_p": 0.5, "min_p": 0.1, "n": 2, "top_logprobs": 3}, [], True),
        ({"logit_bias": {1: 1.0}}, [], False),
        ({"repetition_penalty": 1.1}, [], False),
        ({"presence_penalty": 0.1}, [], False),
        ({"frequency_penalty": -0.1}, [], False),
        ({"min_tokens": 1}, [], False),
        ({}, [SuppressTokensLogitsProcessor([1])], False),
        ({"temperature": 1.0}, [], False),
    ],
)
def test_only_a_greedy_choice_that_nothing_can_change_is_a_plain_argmax(
    options: dict[str, Any], custom: list[LogitsProcessor], plain: bool
) -> None:
    assert sampler_of(SamplingParams(**options), custom).is_plain_argmax == plain


class Overwriting(LogitsProcessor):  # type: ignore[misc]
    """Writes into what it is given, as a careless processor does."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores[:, 2] = -math.inf
        return scores


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_custom_processor_acts_and_cannot_touch_the_model_s_output(temperature: float) -> None:
    logits = torch.zeros(VOCAB)
    logits[2], logits[5] = 60.0, 50.0
    sampler = sampler_of(SamplingParams(temperature=temperature, seed=0), [Overwriting()])

    assert sampler.choose(logits, HISTORY, 4) == 5
    assert logits[2] == 60.0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_ends_an_answer_before_its_fewest_tokens(temperature: float) -> None:
    logits = torch.zeros(VOCAB)
    logits[0], logits[7], logits[5] = 90.0, 80.0, 60.0
    options: dict[str, Any] = {"min_tokens": 2, "stop_token_ids": (7,), "seed": 0}
    sampler = sampler_of(SamplingParams(temperature=temperature, **options))
    ignoring = sampler_of(SamplingParams(temperature=temperature, ignore_eos=True, **options))

    def chosen(by: TokenSampler, num_tokens: int) -> int:
        history = torch.tensor([1] * (PROMPT + num_tokens))
        return by.choose(logits, history, len(history))

    assert [chosen(sampler, count) for count in range(4)] == [5, 5, 0, 0]
    assert chosen(ignoring, 0) == 0  # an ignored end token is a token like any other


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_choice_from_nothing_says_so(temperature: float) -> None:
    nothing = dict.fromkeys(range(VOCAB), -math.inf)
    sampler = TokenSampler(SamplingParams(temperature=temperature, logit_bias=nothing))
    logits = torch.zeros(VOCAB)

    for choice in (sampler.target_probs, lambda row, before: sampler.choose(row, before, 4)):
        with pytest.raises(ConfigError, match="none of the 16 tokens may be chosen"):
            choice(logits, HISTORY)
    with pytest.raises(ModelError, match="cannot be compared"):
        TokenSampler(SamplingParams(temperature=1.0)).choose(logits / 0, HISTORY, 4)


def test_the_stream_of_a_draft_is_another_than_the_target_s() -> None:
    sampler = TokenSampler(SamplingParams(temperature=1.0, seed=5))
    tokens = {
        stream: [sampler.choose(spread_logits(), HISTORY, p, stream) for p in range(60)]
        for stream in (Stream.TARGET, Stream.DRAFT)
    }
    plain = [sampler.choose(spread_logits(), HISTORY, position) for position in range(60)]

    assert tokens[Stream.TARGET] == plain != tokens[Stream.DRAFT]


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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            (name, 2.5)
            for name in ("max_tokens", "min_tokens", "top_k", "n", "top_logprobs", "seed")
        ),
        *((name, True) for name in ("max_tokens", "temperature")),
        *((name, None) for name in ("temperature", "max_tokens", "stop")),
        *((name, math.inf) for name in ("temperature", "repetition_penalty")),
        ("temperature", math.nan),
        ("temperature", "hot"),
        ("stop", 5),
        ("stop", [5]),
        ("stop_token_ids", ["x"]),
        ("stop_token_ids", 7),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{name} must be (a|an) .*, got "):
        SamplingParams(**{name: value})
