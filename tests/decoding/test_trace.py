"""What a pass saw of each token, against plain sums over the vocabulary."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.decoding.trace import (
    TokenRecord,
    first_child,
    log_norms,
    record_token,
    top_logprobs,
)
from specrag.decoding.tree import ROOT, DraftTree

rows = st.lists(
    st.one_of(st.just(-math.inf), st.floats(-20, 20, width=32)), min_size=4, max_size=9
).filter(lambda row: max(row) > -math.inf)


def probs_of(row: list[float]) -> list[float]:
    weights = [math.exp(score - max(row)) for score in row]
    return [weight / math.fsum(weights) for weight in weights]


@given(rows, st.integers(0, 3), st.one_of(st.none(), st.integers(0, 3)))
@settings(max_examples=200, deadline=None)
def test_a_record_is_that_of_plain_sums_even_with_excluded_tokens(
    row: list[float], token: int, draft: int | None
) -> None:
    probs = probs_of(row)
    best, second = sorted(probs, reverse=True)[:2]
    found = record_token(torch.tensor(row), token, draft)
    entropy = -math.fsum(chance * math.log(chance) for chance in probs if chance)

    assert found.entropy == pytest.approx(entropy, abs=1e-4)
    assert found.margin == pytest.approx(best - second, abs=1e-5)
    assert math.exp(found.logprob) == pytest.approx(probs[token], abs=1e-5)
    assert not any(math.isnan(value) for value in (found.entropy, found.margin, found.logprob))
    assert (found.token_id, found.drafted_token) == (token, draft)
    if draft is None:
        assert (found.draft_logprob, found.agreed) == (None, None)
    else:
        assert found.draft_logprob is not None
        assert math.exp(found.draft_logprob) == pytest.approx(probs[draft], abs=1e-5)
        assert found.agreed == (draft == token)


def test_a_draft_that_ties_with_the_emitted_token_did_not_agree() -> None:
    found = record_token(torch.tensor([1.0, 1.0, 0.0]), 0, 1)

    assert found.draft_logprob == found.logprob
    assert found.agreed is False
    assert TokenRecord(1, -0.5, 0.1, 0.9).agreed is None


@given(st.lists(rows.filter(lambda row: len(row) >= 6), min_size=1, max_size=4), st.integers(0, 9))
@settings(max_examples=100, deadline=None)
def test_the_top_tokens_are_the_sorted_ones_without_the_excluded(
    batch: list[list[float]], k: int
) -> None:
    batch = [row[:6] for row in batch if max(row[:6]) > -math.inf] or [[0.0] * 6]
    found = top_logprobs(torch.tensor(batch), k)

    assert len(found) == len(batch)
    for row, alternatives in zip(batch, found, strict=True):
        probs = probs_of(row)
        allowed = sorted((c for c, score in zip(probs, row, strict=True) if score > -math.inf))
        expected = allowed[::-1][:k]
        assert [math.exp(v) for _, v in alternatives] == pytest.approx(expected, abs=1e-5)
        tokens = [token for token, _ in alternatives]
        assert len(set(tokens)) == len(tokens)
        assert [probs[t] for t in tokens] == pytest.approx(expected, abs=1e-5)
        assert all(row[token] > -math.inf for token in tokens)


def test_low_precision_is_summed_in_full_precision() -> None:
    logits = torch.linspace(-3, 3, 300).bfloat16().unsqueeze(0)

    assert top_logprobs(logits, 3) == top_logprobs(logits.float(), 3)


def test_the_first_child_is_the_drafter_s_own_first() -> None:
    tree = DraftTree((4, 2, 9, 1), (ROOT, ROOT, 0, 0))

    assert [first_child(tree, node) for node in (ROOT, 0, 1)] == [4, 9, None]


def test_the_bits_of_a_log_probability_do_not_depend_on_the_other_positions() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        logits = torch.randn(6, 50_000, generator=torch.Generator().manual_seed(1))
        together = log_norms(logits)
        assert together.tolist() == [float(log_norms(row.unsqueeze(0))) for row in logits]
        assert together.tolist() == pytest.approx(logits.logsumexp(-1).tolist())
        alone = [top_logprobs(row.unsqueeze(0), 3)[0] for row in logits]
        assert top_logprobs(logits, 3) == alone
    finally:
        torch.set_num_threads(before)
