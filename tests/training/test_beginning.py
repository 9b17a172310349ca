from __future__ import annotations

from array import array

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.drafters.heads.eagle import EagleHead
from specrag.drafters.heads.eagle3 import Eagle3Head
from specrag.models.transformers_target import TransformersTarget
from specrag.training.beginning import draft_vocabulary, layer_like, new_eagle, new_eagle3
from specrag.training.texts import TrainingText
from tests.architectures import target_of
from tests.training.kit import target

IDS = torch.arange(0, 60, 3)


def text(prompt: list[int], answer: list[int]) -> TrainingText:
    return TrainingText(array("i", [*prompt, *answer]), len(prompt), "chat")


def test_the_vocabulary_is_what_answers_say_most() -> None:
    texts = [text([9] * 50, [5, 5, 3]), text([8], [5, 7, 7, 2])]
    assert draft_vocabulary(texts, 2).tolist() == [5, 7]
    assert draft_vocabulary(texts, 3, [0]).tolist() == [0, 5, 7]
    assert draft_vocabulary(texts, 3, [7]).tolist()[1:] == [5, 7]
    assert draft_vocabulary(texts, 99).tolist() == [2, 3, 5, 7]


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=9), max_size=6),
    st.integers(1, 25),
    st.sets(st.integers(0, 20), max_size=3),
)
def test_a_vocabulary_is_ascending_bounded_and_has_the_ends(
    answers: list[list[int]], size: int, always: set[int]
) -> None:
    found = draft_vocabulary([text([1], a) for a in answers], size, sorted(always)).tolist()
    assert found == sorted(set(found))
    assert len(found) <= size
    assert always <= set(found) or len(always) > size
    assert set(found) <= always | {token for answer in answers for token in answer}
    smaller = draft_vocabulary([text([1], a) for a in answers], max(1, size - 1), sorted(always))
    assert set(smaller.tolist()) <= set(found)


@pytest.mark.parametrize("num_layers", [1, 2])
def test_new_heads_begin_as_the_target_goes_on(num_layers: int) -> None:
    eagle3 = new_eagle3(target(), IDS, num_layers=num_layers)
    eagle = new_eagle(target(), num_layers=num_layers)
    assert isinstance(eagle3, Eagle3Head)
    assert isinstance(eagle, EagleHead)
    assert eagle3.feature_layers == (1, 2, 3)
    assert eagle3.config.draft_vocab_size == len(IDS)
    features = [torch.randn(5, 32, generator=torch.Generator().manual_seed(n)) for n in range(3)]
    fused = eagle3.fuse(features).detach()
    apart = torch.nn.functional.cosine_similarity(fused, features[2]).min()
    assert float(apart) > 0.9  # the highest layer goes through
    for head in (eagle3, eagle):
        theirs = target().decoder_layers[7 - num_layers :]
        for ours, layer in zip(head.draft_layers, theirs, strict=True):
            known = dict(layer.named_parameters())
            for name in ("mlp.up_proj.weight", "self_attn.o_proj.weight"):
                assert torch.equal(ours.get_parameter(name), known[name])
            queries = ours.get_parameter("self_attn.q_proj.weight")
            assert torch.equal(queries[:, -32:], known["self_attn.q_proj.weight"])
    assert torch.equal(eagle3.norm.weight, target().final_norm.weight)
    assert all(parameter.requires_grad for parameter in eagle3.parameters())
    assert eagle3.fc.weight.data_ptr() != new_eagle3(target(), IDS).fc.weight.data_ptr()


def test_the_seed_is_all_that_is_random() -> None:
    heads = [new_eagle3(target(), IDS, seed=seed) for seed in (1, 1, 2)]
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    new_eagle(target())
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(heads[0].fc.weight, heads[1].fc.weight)
    assert not torch.equal(heads[0].fc.weight, heads[2].fc.weight)


@pytest.mark.parametrize(
    "name", ["llama", "qwen2", "qwen3", "gemma2", "phi3", "gpt2", "gpt_neox", "opt", "deepseek_v3"]
)
def test_layers_have_the_shape_of_the_target_s(name: str) -> None:
    """As far as a head can have it; a head for any target can be begun."""
    model: TransformersTarget = target_of(name)
    layer = layer_like(model)
    config = model.model.config
    assert layer.hidden_size == config.hidden_size == 32
    assert layer.num_heads == config.num_attention_heads
    assert layer.max_positions == model.max_context
    head = new_eagle(model)
    assert head.layer_config == layer
    assert all(bool(parameter.isfinite().all()) for parameter in head.parameters())
