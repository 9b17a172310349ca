"""The shape of a head's layers: every field that a config may lack or get wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.drafters.checkpoints.checkpoint import empty_head
from specrag.drafters.checkpoints.layer_shape import LayerShape, layer_shape
from specrag.drafters.checkpoints.settings import Settings
from specrag.drafters.heads.config import DraftLayerConfig, Eagle3Config
from specrag.errors import ModelError
from tests.drafters.checkpoints.kit import SHAPE, VOCAB, WIDTH, Tensors

FIELDS = {
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_attention_heads": "num_heads",
    "num_key_value_heads": "num_kv_heads",
    "head_dim": "head_dim",
}


def tensors_of(layer: DraftLayerConfig, num_layers: int = 1) -> Tensors:
    config = Eagle3Config(layer, VOCAB, VOCAB, WIDTH, (1, 2, 3), num_layers)
    return {key: torch.zeros(value.shape) for key, value in empty_head(config).state_dict().items()}


def shape(tensors: Tensors, config: dict[str, Any]) -> tuple[LayerShape, list[str]]:
    notes: list[str] = []
    return layer_shape(tensors, Settings(config, "head"), SHAPE, "head", notes), notes


LAYERS = st.builds(
    lambda kv, groups, dim, width, inner, flags: DraftLayerConfig(
        width * kv * groups, inner, kv * groups, kv, 2 * dim, 1e-6, *flags
    ),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(1, 6),
    st.integers(1, 9),
    st.tuples(*[st.booleans()] * 4),
)


@settings(deadline=None, max_examples=25)
@given(layer=LAYERS, num_layers=st.integers(1, 3), kept=st.sets(st.sampled_from(sorted(FIELDS))))
def test_what_the_config_says_and_what_it_leaves_out(
    layer: DraftLayerConfig, num_layers: int, kept: set[str]
) -> None:
    told = bool(kept & {"num_attention_heads", "head_dim", "num_key_value_heads"})
    if not (told or layer.qk_norm):
        kept |= {"num_attention_heads"}
    config = {key: getattr(layer, FIELDS[key]) for key in kept}
    found, notes = shape(tensors_of(layer, num_layers), {**config, "rms_norm_eps": 1e-6})
    assert (found.layer, found.num_layers) == (layer, num_layers)
    assert not any("by the tensors" in note for note in notes)


@settings(deadline=None, max_examples=25)
@given(layer=LAYERS, key=st.sampled_from(sorted(FIELDS)), said=st.integers(1, 50))
def test_tensors_overrule_the_config(layer: DraftLayerConfig, key: str, said: int) -> None:
    layer = replace(layer, qk_norm=True)  # tells the width of an attention head
    true = getattr(layer, FIELDS[key])
    found, notes = shape(tensors_of(layer), {key: said, "num_hidden_layers": 40})
    assert found.layer == layer
    wanted = ["num_hidden_layers is 1 by the tensors, 40 by config.json"]
    if said != true:
        wanted.insert(0, f"{key} is {true} by the tensors, {said} by config.json")
    assert notes == wanted


def test_head_dim_may_differ_from_the_width_by_the_heads() -> None:
    layer = DraftLayerConfig(20, 8, num_heads=4, num_kv_heads=2, head_dim=16)
    said = {"num_attention_heads": 4, "num_key_value_heads": 2}
    assert shape(tensors_of(layer), said)[0].layer == layer
    wrong = {**said, "head_dim": 5}
    assert shape(tensors_of(layer), wrong)[0].layer == layer


def test_without_a_word_the_target_s_heads_come_first_and_others_are_tried() -> None:
    layer = DraftLayerConfig(64, 8, num_heads=8, num_kv_heads=4, head_dim=64)
    found, notes = shape(tensors_of(layer), {})
    assert found.layer.head_dim == SHAPE.head_dim
    assert [other.head_dim for other in found.others] == [128, 64]
    assert all(other.num_heads * other.head_dim == 512 for other in found.others)
    assert "attention heads taken to be 16 wide: the file does not tell" in notes


def test_one_possible_width_is_no_guess() -> None:
    layer = DraftLayerConfig(60, 8, num_heads=3, num_kv_heads=1, head_dim=16)
    found, notes = shape(tensors_of(layer), {})
    assert (found.layer, found.others, notes) == (layer, (), [])


def test_the_rest_comes_from_the_config_or_is_that_of_llama() -> None:
    layer = DraftLayerConfig(64, 8, num_heads=4, num_kv_heads=2, head_dim=16)
    said = {"head_dim": 16, "rms_norm_eps": 1e-5, "max_position_embeddings": 7, "rope_theta": 9.0}
    found = shape(tensors_of(layer), said)[0].layer
    assert (found.norm_eps, found.max_positions, found.rope["rope_theta"]) == (1e-5, 7, 9.0)
    found = shape(tensors_of(layer), {"head_dim": 16})[0].layer
    assert (found.norm_eps, found.max_positions, found.rope["rope_theta"]) == (1e-6, 2048, 10000.0)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"hidden_act": "gelu"}, "activation 'gelu'"),
        ({"transformer_layer_config": {"model_type": "qwen3_next"}}, "type 'qwen3_next'"),
        ({"num_attention_heads": "4"}, "num_attention_heads"),
    ],
)
def test_other_layers_are_refused(config: dict[str, Any], said: str) -> None:
    layer = DraftLayerConfig(64, 8, num_heads=4, num_kv_heads=2, head_dim=16)
    with pytest.raises(ModelError, match=said):
        shape(tensors_of(layer), config)


def test_no_width_fits() -> None:
    layer = DraftLayerConfig(60, 8, num_heads=3, num_kv_heads=3, head_dim=14)
    with pytest.raises(ModelError, match=r"42 wide and its keys 42(.|\n)*num_attention_heads"):
        shape(tensors_of(layer), {})


@pytest.mark.parametrize(
    "key", ["self_attn.q_proj", "self_attn.k_proj", "self_attn.o_proj", "mlp.gate_proj"]
)
def test_a_missing_or_folded_tensor(key: str) -> None:
    tensors = tensors_of(DraftLayerConfig(64, 8, 4, 2, 16))
    name = f"layers.0.{key}.weight"
    with pytest.raises(ModelError, match="must be a matrix, its shape is"):
        shape({**tensors, name: tensors[name].flatten()}, {})
    del tensors[name]
    with pytest.raises(ModelError, match=f"lacks {name}"):
        shape(tensors, {})
