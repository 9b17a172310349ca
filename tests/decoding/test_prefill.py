"""Prefill: the keys of earlier requests change no answer, and are counted exactly."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.decoding.budget import SpeculationConfig
from specrag.decoding.generator import Generation, SpeculativeGenerator
from specrag.decoding.prefill import prefill
from specrag.decoding.row import DecodingRequest, Row
from specrag.decoding.sampling import SamplingParams
from specrag.drafters.suffix import SuffixDrafter
from specrag.models.prefix_cache import PrefixCache, common_prefix
from tests.decoding.scripts import (
    CONFIG,
    MODES,
    TOKENIZER,
    VOCAB,
    ScriptedDrafter,
    SilentDrafter,
    check_between_rounds,
    finish,
    knowing,
    open_session,
    request,
    target,
)

PER_TOKEN = 2 * 2 * 2 * 8 * 8  # layers, keys and values, heads, width, float64
BASE = tuple(random.Random(5).randrange(1, VOCAB) for _ in range(48))


@pytest.fixture
def prefilled(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Lengths of what reaches the target's prefill, call by call."""
    seen: list[list[int]] = []
    real = target().prefill

    def counted(prompts: Sequence[Sequence[int]], *args: Any, **kwargs: Any) -> Any:
        seen.append([len(prompt) for prompt in prompts])
        return real(prompts, *args, **kwargs)

    monkeypatch.setattr(target(), "prefill", counted)
    return seen


prompts = st.builds(
    lambda shared, tail: BASE[:shared] + tuple(tail),
    st.integers(1, len(BASE)),
    st.lists(st.integers(1, 3), max_size=6),
)
requests = st.builds(
    lambda prompt, number, mode, traced, length: DecodingRequest(
        prompt, SamplingParams(max_tokens=length, seed=number, **MODES[mode]), num_traced=traced
    ),
    prompts,
    st.integers(0, 3),
    st.sampled_from(["greedy", "penalised"]),
    st.sampled_from([0, 0, 1, 5]),
    st.integers(1, 6),
)


def decode(batch: Sequence[DecodingRequest], cache: PrefixCache | None) -> list[Row]:
    session = open_session(SuffixDrafter(), batch, CONFIG, None, cache)
    while not session.finished:
        session.step()
        check_between_rounds(session)
    session.close()
    return session.rows


def assert_same(found: Row, expected: Row) -> None:
    assert found.token_ids == expected.token_ids
    assert found.text == expected.text
    assert found.logprobs == pytest.approx(expected.logprobs, abs=1e-6)
    assert (found.trace is None) == (expected.trace is None)
    if found.trace is not None and expected.trace is not None:
        scores = expected.trace.prompt_logprobs
        assert found.trace.prompt_logprobs == pytest.approx(scores, abs=1e-6)


def reusable(asked: DecodingRequest, done: Sequence[Sequence[int]], num_logits: int) -> int:
    """The longest beginning of a prompt that an earlier text has, logits left to be computed."""
    most = len(asked.prompt_ids) - num_logits
    longest = min(max((common_prefix(asked.prompt_ids, text) for text in done), default=0), most)
    return longest if longest >= 16 else 0


@given(st.lists(st.lists(requests, min_size=1, max_size=3), min_size=2, max_size=5))
@settings(deadline=None, max_examples=15)
def test_answers_are_the_same_with_what_earlier_requests_left(
    batches: list[list[DecodingRequest]],
) -> None:
    cache = PrefixCache(10**9)
    done: list[Sequence[int]] = []
    for batch in batches:
        rows = decode(batch, cache)
        for row, expected in zip(rows, decode(batch, None), strict=True):
            assert_same(row, expected)
        num_logits = 1 + max(asked.num_traced for asked in batch)
        for row in rows:
            expected_count = reusable(row.request, done, num_logits)
            assert row.stats.num_cached_tokens == expected_count
        # The last token was never evaluated.
        done += [(*row.request.prompt_ids, *row.token_ids)[:-1] for row in rows]


@given(st.lists(requests, min_size=3, max_size=8), st.integers(0, 130))
@settings(deadline=None, max_examples=15)
def test_answers_are_the_same_when_most_is_forgotten_again(
    asked: list[DecodingRequest], most: int
) -> None:
    cache = PrefixCache(most * PER_TOKEN)
    for each in asked:
        (row,), (expected,) = decode([each], cache), decode([each], None)
        assert_same(row, expected)
        assert cache.num_bytes <= cache.max_bytes
        assert row.stats.num_cached_tokens <= min(most, len(each.prompt_ids) - 1)


def test_only_the_new_part_of_a_prompt_is_evaluated(prefilled: list[list[int]]) -> None:
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    cache = PrefixCache(10**9)
    generator = SpeculativeGenerator(target(), TOKENIZER, "suffix", CONFIG, None, cache)
    first = generator.generate(BASE, params)
    assert isinstance(first, Generation)
    turn = [*BASE, *first.token_ids, 3, 4]
    cached = []
    for prompt in (turn, turn, turn[:40], [9, *turn]):
        found = generator.generate(prompt, params)
        assert isinstance(found, Generation)
        cached.append(found.stats.num_cached_tokens)

    # All but the last token of a turn is known, then all but the one that gives the first logits.
    assert cached == [len(BASE) + 3, len(turn) - 1, 39, 0]
    assert prefilled == [[48], [3], [1], [1], [len(turn) + 1]]


def test_a_cancelled_answer_is_kept_as_well_and_one_that_failed() -> None:
    cache = PrefixCache(10**9)
    params = SamplingParams(max_tokens=40, temperature=1.5, seed=4, ignore_eos=True)
    asked = DecodingRequest(BASE, params)
    for number in range(2):
        session = open_session(SilentDrafter(), [asked], CONFIG, None, cache)
        for _ in range(5):
            session.step()
        if number:
            session.cancel(0)
        session.close()
        tokens = (*BASE, *session.rows[0].token_ids)
        assert list(cache._entries) == [tokens[:-1]]
        assert session.rows[0].stats.num_cached_tokens == (len(BASE) - 1 if number else 0)


def test_generators_share_nothing_unless_told_to() -> None:
    params = SamplingParams(max_tokens=3)
    for cache in (None, PrefixCache(0)):
        generator = SpeculativeGenerator(target(), TOKENIZER, "none", CONFIG, None, cache)
        for _ in range(2):
            found = generator.generate(BASE, params)
            assert isinstance(found, Generation)
            assert found.stats.num_cached_tokens == 0
    for cache in (PrefixCache(10**9), PrefixCache(10**9)):
        generator = SpeculativeGenerator(target(), TOKENIZER, "none", CONFIG, None, cache)
        found = generator.generate(BASE, params)
        assert isinstance(found, Generation)
        assert found.stats.num_cached_tokens == 0


def test_strict_decoding_reuses_nothing() -> None:
    cache = PrefixCache(10**9)
    config = SpeculationConfig(4, strict=True)
    generator = SpeculativeGenerator(target(), TOKENIZER, "suffix", config, None, cache)
    for _ in range(2):
        found = generator.generate(BASE, SamplingParams(max_tokens=3))
        assert isinstance(found, Generation)
        assert found.stats.num_cached_tokens == 0
    assert len(cache) == 0


def test_rows_that_join_reuse_what_rows_before_them_left() -> None:
    cache = PrefixCache(10**9)
    asked = DecodingRequest(BASE, SamplingParams(max_tokens=3, ignore_eos=True))
    session = open_session(ScriptedDrafter(knowing([asked])), [asked], CONFIG, None, cache)
    finish(session)
    session.add(asked)
    while not session.finished:
        session.step()
        check_between_rounds(session)

    assert session.rows[1].stats.num_cached_tokens == len(BASE) - 1
    assert_same(session.rows[1], session.rows[0])


def test_equal_prompts_of_a_batch_are_evaluated_once(prefilled: list[list[int]]) -> None:
    asked = [request(1, traced=2), request(2), request(1, "sampled"), request(1)]
    found = prefill(target(), asked, 64)
    lengths = [len(each.prompt_ids) for each in asked]

    assert prefilled == [lengths[:2]]
    assert found.cache.lengths == tuple(lengths)
    assert [len(logits) for logits in found.logits] == [3] * 4
    assert found.logits[0].equal(found.logits[2])
    assert not found.logits[0].equal(found.logits[1])
    found.cache.check_integrity()
