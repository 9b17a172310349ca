"""Our own logits processors against plain loops, and the merge of custom ones."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation.logits_process import (
    LogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
)

from specrag.decoding.processors import (
    CountPenaltyLogitsProcessor,
    MinTokensLogitsProcessor,
    with_custom,
)

VOCAB = 8
texts = st.lists(st.integers(0, VOCAB - 1), max_size=12)
scores_of = st.lists(st.floats(-9, 9, width=32), min_size=VOCAB, max_size=VOCAB)
penalties = st.floats(-2, 2)


@given(scores_of, texts, st.integers(0, 14), penalties, penalties)
@settings(max_examples=150, deadline=None)
def test_penalties_count_the_tokens_of_the_answer(
    scores: list[float], text: list[int], prompt_length: int, presence: float, frequency: float
) -> None:
    row = torch.tensor([scores])
    processor = CountPenaltyLogitsProcessor(presence, frequency, prompt_length)
    found = processor(torch.tensor([text], dtype=torch.long), row)[0]
    counts = Counter(text[prompt_length:])
    expected = [
        score - (presence + frequency * counts[token] if counts[token] else 0.0)
        for token, score in enumerate(scores)
    ]

    assert found.tolist() == pytest.approx(expected, abs=1e-5)
    assert row.tolist() == [scores]  # what it was given is not touched


def test_an_excluded_token_stays_excluded_when_a_penalty_favours_repetition() -> None:
    row = torch.tensor([[-math.inf, 1.0]])
    found = CountPenaltyLogitsProcessor(-2.0, -2.0, 0)(torch.tensor([[0, 1]]), row)

    assert found.tolist() == [[-math.inf, 5.0]]


@given(scores_of, texts, st.integers(0, 6), st.integers(0, 9), st.sets(st.integers(0, 7)))
@settings(max_examples=100, deadline=None)
def test_the_fewest_tokens_are_those_of_transformers(
    scores: list[float], text: list[int], prompt_length: int, fewest: int, ends: set[int]
) -> None:
    row, before = torch.tensor([scores]), torch.tensor([text], dtype=torch.long)
    theirs = MinNewTokensLengthLogitsProcessor(prompt_length, fewest, sorted(ends))
    ours = MinTokensLogitsProcessor(prompt_length, fewest, sorted(ends))

    assert torch.equal(ours(before, row), theirs(before, row))


def test_custom_processors_come_last_or_take_the_place_of_one_of_their_kind() -> None:
    penalty, ends = RepetitionPenaltyLogitsProcessor(1.5), MinTokensLogitsProcessor(1, 2, [0])
    own_penalty, own = RepetitionPenaltyLogitsProcessor(1.1), SuppressTokensLogitsProcessor([3])
    own_ends = MinNewTokensLengthLogitsProcessor(1, 5, [0])
    defaults: list[LogitsProcessor] = [penalty, ends]

    assert with_custom(defaults, []) == [penalty, ends]
    assert with_custom(defaults, [own]) == [penalty, ends, own]
    assert with_custom(defaults, [own, own_penalty]) == [own_penalty, ends, own]
    assert with_custom(defaults, [own_ends]) == [penalty, own_ends]
    assert with_custom([], [own, TemperatureLogitsWarper(2.0), own])[0] is own
