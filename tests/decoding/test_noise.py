"""Counter-based noise: its bits by definition, its law, and the coupling that it gives."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from specrag.decoding import noise
from specrag.decoding.noise import Stream, derived_seed, draw, gumbel, uniform
from specrag.errors import ConfigError, ModelError

MANY = 20_000
LOWEST, HIGHEST = -math.log(53 * math.log(2)), 53 * math.log(2)
TOKENS = torch.arange(MANY)

seeds = st.one_of(st.integers(0, 9), st.integers(-(2**70), 2**70))
positions = st.integers(0, 2**40)
streams = st.sampled_from(Stream)


def mix(value: int) -> int:
    """The output function of SplitMix64, on numbers without a sign."""
    value %= 2**64
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
    return value ^ (value >> 31)


def bits_of(seed: int, position: int, stream: int, token: int) -> int:
    golden = 0x9E3779B97F4A7C15
    key = mix(mix(mix(seed % 2**64 ^ 0x5DEECE66D5DEECE6) + (position + 1) * golden)
              + (stream + 1) * golden)  # fmt: skip
    return mix(key + token * golden)


@given(seeds, positions, streams, st.lists(st.integers(0, 2**31), min_size=1, max_size=5))
@settings(max_examples=100, deadline=None)
def test_the_noise_is_that_of_its_definition_token_by_token(
    seed: int, position: int, stream: Stream, tokens: list[int]
) -> None:
    uniforms = [((bits_of(seed, position, stream, t) >> 12) + 0.5) / 2**52 for t in tokens]
    found = gumbel(torch.tensor(tokens), seed, position, stream)

    assert found.dtype == torch.float64
    assert found.tolist() == pytest.approx([-math.log(-math.log(u)) for u in uniforms], rel=1e-12)


@given(seeds, positions, streams)
@settings(max_examples=30, deadline=None)
def test_an_accelerator_hashes_as_the_cpu_does(seed: int, position: int, stream: Stream) -> None:
    key = noise._key(seed, position, stream)
    tokens = torch.tensor([0, 1, 2, 49151, 2**31, 2**40])
    hashed = noise._bits(tokens, key)

    assert hashed.tolist() == noise._bits(tokens.numpy(), key).tolist()
    assert tokens.tolist() == [0, 1, 2, 49151, 2**31, 2**40]


def uniforms_of(values: torch.Tensor) -> np.ndarray:
    return np.asarray((-(-values).exp()).exp())


SERIES = {
    "tokens": lambda: uniforms_of(gumbel(TOKENS, 7, 40, Stream.TARGET)),
    "tokens of a negative seed": lambda: uniforms_of(gumbel(TOKENS, -7, 0, Stream.DRAFT)),
    "positions": lambda: np.array([uniform(7, p, Stream.ACCEPT) for p in range(MANY)]),
    "seeds": lambda: np.array([uniform(s, 7, Stream.ACCEPT) for s in range(MANY)]),
    "both": lambda: np.array([uniform(s, 9 - s, Stream.ACCEPT) for s in range(-MANY, 0)]),
    "one token over positions": lambda: np.concatenate(
        [uniforms_of(gumbel(TOKENS[5:6], 3, p, Stream.TARGET)) for p in range(MANY // 4)]
    ),
}


@pytest.mark.parametrize("name", SERIES)
def test_numbers_are_uniform_and_neighbours_unrelated(name: str) -> None:
    numbers = SERIES[name]()
    assert ((numbers >= 0) & (numbers < 1)).all()
    assert stats.chisquare(np.bincount((numbers * 100).astype(int), minlength=100)).pvalue > 1e-3
    for lag in (1, 2, 16):
        assert stats.pearsonr(numbers[:-lag], numbers[lag:]).pvalue > 1e-3
    pairs = (10 * numbers[:-1:2]).astype(int) * 10 + (10 * numbers[1::2]).astype(int)
    assert stats.chisquare(np.bincount(pairs, minlength=100)).pvalue > 1e-3


def test_streams_positions_and_seeds_are_unrelated() -> None:
    places = [(seed, position) for seed in (0, 1, 2**63) for position in (0, 1, 2)]
    series = [gumbel(TOKENS, *place, stream).numpy() for place in places for stream in Stream]
    pairs = list(itertools.combinations(series, 2))
    p_values = [stats.pearsonr(one, other).pvalue for one, other in pairs]

    assert len(pairs) == 630
    assert min(p_values) > 1e-3 / len(pairs)
    assert stats.kstest(p_values, "uniform").pvalue > 1e-3


def test_no_two_places_share_a_number() -> None:
    coins = {uniform(s, p, stream) for s in range(60) for p in range(60) for stream in Stream}
    assert len(coins) == 60 * 60 * len(Stream)


def test_answers_to_one_prompt_have_seeds_of_their_own() -> None:
    assert [derived_seed(seed, 0) for seed in (0, 7, -3)] == [0, 7, -3]
    found = {derived_seed(seed, index) for seed in range(-50, 50) for index in range(1, 50)}
    assert len(found) == 100 * 49
    assert all(0 <= seed < 2**63 for seed in found)


@pytest.mark.parametrize("bits", [0, 2**52 - 1])
def test_the_extremes_of_the_noise_are_finite_and_those_that_pruning_relies_on(
    bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise, "_bits", lambda tokens, key: tokens * 0 + bits)
    (value,) = gumbel(TOKENS[:1], 0, 0, Stream.TARGET).tolist()

    assert value == pytest.approx(HIGHEST if bits else LOWEST, rel=1e-12)
    assert HIGHEST - LOWEST < noise._REACH


def test_a_token_wins_from_as_far_as_the_noise_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    # The best token has the least noise, the other one the most.
    monkeypatch.setattr(
        noise, "_bits", lambda tokens, key: np.where(tokens == 0, 0, 2**52 - 1).astype(np.int64)
    )
    for below, winner in [(40.0, 1), (40.3, 1), (40.4, 0), (60.0, 0)]:
        scores = torch.tensor([3.0, 3.0 - below], dtype=torch.float64)
        assert draw(scores, 0, 0, Stream.TARGET) == winner


score_lists = st.lists(
    st.one_of(st.just(-math.inf), st.floats(-60, 60, width=32)), min_size=2, max_size=40
).filter(lambda scores: max(scores) > -math.inf)


@given(score_lists, seeds, positions, streams)
@settings(max_examples=200, deadline=None)
def test_a_draw_is_the_largest_sum_of_score_and_noise_of_all_tokens(
    scores: list[float], seed: int, position: int, stream: Stream
) -> None:
    row = torch.tensor(scores)
    everything = row.double() + gumbel(torch.arange(len(scores)), seed, position, stream)

    found = draw(row, seed, position, stream)
    assert found == int(everything.argmax())
    assert scores[found] > -math.inf
    assert draw(row.double() + 5.0, seed, position, stream) == found  # scores need no scale


@pytest.mark.parametrize("shape", ["a batch", "a column", "double"])
def test_a_draw_does_not_see_how_the_scores_lie_in_memory(shape: str) -> None:
    rows = torch.randn(40, 300, generator=torch.Generator().manual_seed(0))
    for position, row in enumerate(rows):
        expected = draw(row.clone(), 5, position, Stream.TARGET)
        given = {
            "a batch": rows[None].repeat(2, 1, 1)[1, position],
            "a column": rows.T.contiguous()[:, position],
            "double": row.double(),
        }[shape]
        assert draw(given, 5, position, Stream.TARGET) == expected


@pytest.mark.parametrize(
    "streams", [(Stream.TARGET, Stream.DRAFT), (Stream.DRAFT, Stream.RESIDUAL)]
)
def test_draws_of_two_streams_are_independent(streams: tuple[Stream, Stream]) -> None:
    scores = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    table = np.zeros((4, 4))
    for position in range(4_000):
        table[tuple(draw(scores, 11, position, stream) for stream in streams)] += 1

    assert stats.chi2_contingency(table).pvalue > 1e-3


@pytest.mark.parametrize(
    ("scores", "error", "message"),
    [
        ([-math.inf, -math.inf], ConfigError, "none of the 2 tokens may be chosen"),
        ([0.0, math.nan], ModelError, "the largest is nan"),
        ([math.inf, 0.0], ModelError, "the largest is inf"),
    ],
)
def test_scores_that_allow_no_draw_say_so(
    scores: list[float], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        draw(torch.tensor(scores), 0, 0, Stream.TARGET)


# Two distributions drawn with the same noise.

NUM_PAIRS, NUM_COUPLED, VOCAB = 40, 4_000, 16


def pairs_of_laws() -> tuple[torch.Tensor, torch.Tensor]:
    """Random pairs ``[pairs, vocab]``, from nearly equal to nearly disjoint."""
    generator = torch.Generator().manual_seed(3)
    shared = torch.randn(NUM_PAIRS, VOCAB, generator=generator, dtype=torch.float64)
    own = torch.randn(2, NUM_PAIRS, VOCAB, generator=generator, dtype=torch.float64)
    spread = torch.linspace(0.05, 3.0, NUM_PAIRS, dtype=torch.float64)[:, None]
    first, second = torch.softmax(1.5 * shared + spread * own, -1)
    return first, second


def shares_of_agreement() -> tuple[torch.Tensor, torch.Tensor]:
    """How often the pairs agree, coupled by Gumbel noise and by one number for both."""
    first, second = pairs_of_laws()
    coupled, inverse = torch.zeros(NUM_PAIRS), torch.zeros(NUM_PAIRS)
    for position in range(NUM_COUPLED):
        values = gumbel(torch.arange(VOCAB), 1, position, Stream.TARGET)
        coupled += (first.log() + values).argmax(-1) == (second.log() + values).argmax(-1)
        number = uniform(1, position, Stream.TARGET)
        tokens = [(law.cumsum(-1) <= number).sum(-1) for law in (first, second)]
        inverse += tokens[0] == tokens[1]
    return coupled / NUM_COUPLED, inverse / NUM_COUPLED


def test_the_coupling_keeps_its_bound_and_beats_inverse_sampling() -> None:
    first, second = pairs_of_laws()
    distance = 0.5 * (first - second).abs().sum(-1)
    coupled, inverse = shares_of_agreement()
    ratios = torch.maximum(
        first[:, None, :] / first[:, :, None], second[:, None, :] / second[:, :, None]
    )
    exact = (1 / ratios.sum(-1)).sum(-1)  # the chance of each token to be drawn twice
    margin = 5 * (0.25 / NUM_COUPLED) ** 0.5

    assert float(distance.min()) < 0.05
    assert float(distance.max()) > 0.6
    assert ((coupled - exact).abs() < margin).all()
    assert (coupled > (1 - distance) / (1 + distance) - margin).all()
    assert float(coupled.mean()) > float(inverse.mean()) + 0.05


def test_the_same_laws_always_agree() -> None:
    (law, _) = pairs_of_laws()
    for position, row in enumerate(law):
        found = {draw(row.log() + shift, 1, position, Stream.TARGET) for shift in (-3.0, 0.0)}
        assert len(found) == 1
