"""What heads take from their target, and heads that were made for another one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from specrag.drafters.heads.config import DraftLayerConfig
from specrag.drafters.heads.eagle3 import Eagle3Head
from specrag.drafters.heads.surroundings import (
    check_sizes,
    embedding_of,
    fitted,
    input_embedding,
    projection_of,
)
from specrag.errors import ConfigError, ModelError
from specrag.models.tiny import tiny_target
from tests.drafters.kit import VOCAB, target
from tests.drafters.reading import HIDDEN, eagle_heads


def narrow(**shape: Any) -> Eagle3Head:
    head = eagle_heads()
    assert isinstance(head, Eagle3Head)
    layer = DraftLayerConfig(24, 48, 4, 2, 8)
    return Eagle3Head(replace(head.config, layer=layer, **shape)).double()


def test_embeddings_are_the_heads_own_or_the_targets() -> None:
    tokens = torch.tensor([[3, 60]])
    shared = embedding_of(eagle_heads(), target())(tokens)
    assert torch.equal(shared, target().model.model.embed_tokens(tokens))
    own = narrow(own_embedding=True)
    assert torch.equal(embedding_of(own, target())(tokens), own.embed_tokens(tokens))


def test_embeddings_of_another_width_cannot_be_shared() -> None:
    with pytest.raises(ConfigError, match="24 wide and has no token embeddings .* are 32 wide"):
        embedding_of(narrow(), target())


def test_embeddings_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    other = tiny_target(vocab_size=VOCAB)
    monkeypatch.setattr(other.model, "get_input_embeddings", lambda: None)
    with pytest.raises(ModelError, match="token embeddings of tiny-0 cannot be read"):
        input_embedding(other)


def test_tokens_are_named_by_the_heads_own_lm_head_or_the_targets() -> None:
    states = torch.randn(3, HIDDEN, dtype=torch.float64)
    ids = torch.tensor([9, 4, 31])
    weight = target().model.lm_head.weight
    shared = projection_of(eagle_heads(), target(), ids)
    assert torch.allclose(shared.logits(states), states @ weight[ids].T)
    head = eagle_heads(own_lm_head=True, draft_vocab_size=3)
    own = projection_of(head, target(), ids)
    assert torch.allclose(own.logits(states), states @ head.get_parameter("lm_head.weight").T)
    assert own.token_ids.tolist() == shared.token_ids.tolist() == [9, 4, 31]


def test_a_head_that_fits_is_taken_as_it_is() -> None:
    head = eagle_heads()
    assert fitted(head, target()) is head


def test_another_precision_is_a_copy() -> None:
    head = eagle_heads()
    single = fitted(head, tiny_target(vocab_size=VOCAB))
    assert {p.dtype for p in single.parameters()} == {torch.float32}
    assert {p.dtype for p in head.parameters()} == {torch.float64}
    assert all(p.requires_grad for p in head.parameters())  # it may be in training


@pytest.mark.parametrize("generation", [2, 3])
def test_sizes_of_another_target_are_named(generation: int) -> None:
    check_sizes(eagle_heads(generation=generation), target())
    with pytest.raises(ConfigError, match=f"made for {VOCAB} tokens, but tiny-0 has 64"):
        check_sizes(eagle_heads(generation=generation), tiny_target())


def test_states_of_another_width_are_refused() -> None:
    head = eagle_heads(target_hidden_size=48)
    with pytest.raises(ConfigError, match="states of width 48, but those of tiny-1 have 32"):
        check_sizes(head, target())
