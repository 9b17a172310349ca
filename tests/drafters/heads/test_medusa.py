from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from specrag.drafters.heads.medusa import MedusaConfig, MedusaHeads
from specrag.drafters.heads.projection import Projection
from specrag.errors import ConfigError
from tests.drafters.kit import VOCAB, target
from tests.drafters.reading import HIDDEN, medusa_heads

STATES = torch.randn(2, 5, HIDDEN, dtype=torch.double, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("num_layers", "shared"), [(1, False), (2, False), (3, True)])
def test_a_head_adds_its_blocks_to_the_state(bias: bool, num_layers: int, shared: bool) -> None:
    heads = medusa_heads(num_layers=num_layers, shared_layers=shared, bias=bias)
    weights = heads.state_dict()
    found = heads(STATES)

    assert found.shape == (2, 5, 3, HIDDEN)
    for head in range(3):
        inner = STATES
        for number in range(num_layers):
            name = f"heads.{head}.{0 if shared else number}.linear"
            step = inner @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0)
            inner = inner + step * torch.sigmoid(step)
        assert torch.allclose(found[..., head, :], inner)


def test_the_first_heads_can_be_asked_alone() -> None:
    heads = medusa_heads()

    assert torch.equal(heads(STATES, 2), heads(STATES)[..., :2, :])


def test_new_heads_repeat_the_state() -> None:
    heads = MedusaHeads(MedusaConfig(HIDDEN, VOCAB, 2)).double()

    assert torch.equal(heads(STATES)[..., 1, :], STATES)


def test_the_weights_have_the_names_that_files_are_brought_to() -> None:
    config = MedusaConfig(8, 20, 2, num_layers=2, own_lm_head=True, draft_vocab_size=6)
    blocks = [f"heads.{i}.{j}.linear" for i in range(2) for j in range(2)]
    names = {f"{block}.{kind}" for block in blocks for kind in ("weight", "bias")}

    found = {name: tuple(weight.shape) for name, weight in MedusaHeads(config).state_dict().items()}
    assert set(found) == names | {"lm_heads.0.weight", "lm_heads.1.weight"}
    assert found["lm_heads.1.weight"] == (6, 8)


@pytest.mark.parametrize("num_tokens", [5, VOCAB])
def test_lm_heads_of_their_own_are_read_by_the_heads(num_tokens: int) -> None:
    ids = [4, 9, 70, 3, 11]
    heads = medusa_heads(own_lm_head=True, draft_vocab_size=num_tokens)
    logits = heads.logits(STATES, Projection.shared(target(), ids))

    assert logits.shape == (2, 5, 3, 5)
    for head, weight in enumerate(heads.own_weights):
        rows = weight if num_tokens == 5 else weight[ids]
        assert torch.allclose(logits[..., head, :], F.linear(heads(STATES)[..., head, :], rows))


def test_heads_without_read_the_targets() -> None:
    heads, projection = medusa_heads(), Projection.shared(target(), [4, 9])

    assert torch.equal(heads.logits(STATES, projection), projection.logits(heads(STATES)))
    assert heads.own_weights == ()


def test_own_lm_heads_can_start_from_the_targets() -> None:
    projection = Projection.shared(target(), [4, 9])
    heads = MedusaHeads(MedusaConfig(HIDDEN, VOCAB, 2, own_lm_head=True, draft_vocab_size=2))
    heads.double().start_from(projection)

    logits = heads.logits(STATES, projection)
    assert torch.allclose(logits[..., 1, :], projection.logits(STATES))
    logits.sum().backward()  # type: ignore[no-untyped-call]
    assert all(weight.grad is not None for weight in heads.own_weights)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_heads": 0}, "num_heads of Medusa heads must be at least 1"),
        ({"num_layers": 0}, "num_layers of Medusa heads must be at least 1"),
        ({"draft_vocab_size": 21}, "name 1 to 20 tokens.*draft_vocab_size=21"),
        ({"draft_vocab_size": 0}, "draft_vocab_size=0"),
    ],
)
def test_an_impossible_shape_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MedusaConfig(**{"hidden_size": 8, "vocab_size": 20, "num_heads": 2, **wrong})
