from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specrag.drafters.heads.projection import Projection
from specrag.errors import ConfigError
from specrag.training.taught import Taught, WeighedTokens

VOCAB, WIDTH, POSITIONS = 60, 8, 5
IDS = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(0))[:40]


def drawn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def projection() -> Projection:
    return Projection(drawn(VOCAB, WIDTH, seed=1), VOCAB, IDS)


def states(seed: int = 2) -> torch.Tensor:
    return drawn(POSITIONS, WIDTH, seed=seed)


@pytest.mark.parametrize("weighed", [None, WeighedTokens(30, 10), WeighedTokens(100, 100)])
def test_the_whole_vocabulary_gives_the_cross_entropy(weighed: WeighedTokens | None) -> None:
    taught = Taught.by(projection(), states(), weighed)
    logits = projection().logits(states(3))
    expected = torch.nn.functional.cross_entropy(
        logits, torch.softmax(projection().logits(states()), -1), reduction="none"
    )
    torch.testing.assert_close(taught.losses(taught.projection.logits(states(3))), expected)
    some = torch.tensor([3, 1])
    torch.testing.assert_close(taught.losses(logits[some], some), expected[some])
    assert taught.said(logits).tolist() == IDS[logits.argmax(-1)].tolist()


@given(likely=st.integers(1, 39), others=st.integers(1, 39), seed=st.integers(0, 99))
def test_likely_tokens_are_there_and_others_stand_for_the_rest(
    likely: int, others: int, seed: int
) -> None:
    others = min(others, 39 - likely)
    if not others:
        return
    taught = Taught.by(projection(), states(), WeighedTokens(likely, others), seed)
    assert taught.places is not None
    assert taught.offsets is not None
    assert len(set(taught.places.tolist())) == likely + others
    mass = torch.softmax(projection().logits(states()), -1).sum(0)
    chosen = mass[taught.places[:likely]]
    left_out = torch.ones(40, dtype=torch.bool)
    left_out[taught.places[:likely]] = False
    assert float(chosen.min()) >= float(mass[left_out].max())
    # Together they stand for exactly the tokens there are.
    assert float(taught.offsets.exp().sum()) == pytest.approx(40)
    assert taught.projection.token_ids.tolist() == IDS[taught.places].tolist()
    torch.testing.assert_close(taught.probs.sum(-1), torch.ones(POSITIONS, dtype=torch.double))
    assert not taught.probs[:, likely:].any()
    torch.testing.assert_close(
        taught.projection.logits(states(3)), projection().logits(states(3))[:, taught.places]
    )


def test_the_normaliser_is_that_of_the_whole_vocabulary_on_average() -> None:
    logits = projection().logits(0.3 * states(3))
    sums = torch.zeros(POSITIONS, dtype=torch.double)
    for seed in range(3000):
        taught = Taught.by(projection(), states(), WeighedTokens(6, 5), seed)
        assert taught.places is not None
        assert taught.offsets is not None
        sums += (logits[:, taught.places] + taught.offsets).exp().sum(-1)
    torch.testing.assert_close(sums / 3000, logits.exp().sum(-1), rtol=0.05, atol=0.0)


def test_a_seed_draws_the_same_tokens_and_another_one_others() -> None:
    drawn_by = [
        Taught.by(projection(), states(), WeighedTokens(6, 5), seed).places for seed in (1, 1, 2)
    ]
    assert all(isinstance(found, torch.Tensor) for found in drawn_by)
    assert torch.equal(drawn_by[0], drawn_by[1])  # type: ignore[arg-type]
    assert not torch.equal(drawn_by[0], drawn_by[2])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["likely", "others"])
def test_none_at_all_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be at least 1, got 0"):
        WeighedTokens(**{name: 0})
