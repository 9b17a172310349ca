"""The layer of a head against that of transformers, and the rotation of its positions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, Qwen3Config
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer

from specrag.drafters.heads.config import DraftLayerConfig
from specrag.drafters.heads.layer import DraftLayer, Rotary, attend, rotated
from specrag.models.masks import additive

LAYER = DraftLayerConfig(24, 40, num_heads=4, num_kv_heads=2, head_dim=6, max_positions=64)
SCALED: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 16},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    },
}
LIKE = torch.zeros(1)


def rope(kind: str, theta: float = 5000.0) -> dict[str, Any]:
    return {"rope_type": kind, "rope_theta": theta, **SCALED[kind]}


def settings_of(config: DraftLayerConfig) -> dict[str, Any]:
    return {
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.norm_eps,
        "max_position_embeddings": config.max_positions,
        "rope_parameters": dict(config.rope),
        "attn_implementation": "eager",
    }


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"head_dim": 8},
        {"num_kv_heads": 4},
        {"num_kv_heads": 1, "norm_eps": 0.1},
        {"qkv_bias": True, "output_bias": True, "mlp_bias": True},
        {"qk_norm": True},
        {"qk_norm": True, "head_dim": 10, "qkv_bias": True, "output_bias": True},
    ],
)
@torch.no_grad()
def test_a_layer_is_that_of_llama_or_qwen3(shape: dict[str, Any]) -> None:
    config = replace(LAYER, **shape)
    fields = {**settings_of(config), "attention_bias": config.qkv_bias}
    theirs: Any
    if config.qk_norm:
        theirs = Qwen3DecoderLayer(Qwen3Config(**fields), 0).double()
    else:
        theirs = LlamaDecoderLayer(LlamaConfig(**fields, mlp_bias=config.mlp_bias), 0).double()
    draw = torch.Generator().manual_seed(3)
    for parameter in theirs.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=draw).double() / 2)
    states = torch.randn(2, 7, config.hidden_size, generator=draw).double()
    rotation = Rotary(config)(torch.arange(7).expand(2, 7), states)
    mask = additive(torch.ones(2, 7, 7, dtype=torch.bool).tril(), states.dtype)
    wanted = theirs(states, attention_mask=mask, position_embeddings=rotation)

    ours = DraftLayer(config).double()
    tensors = {k: v for k, v in theirs.state_dict().items() if not k.startswith("input_layernorm")}
    ours.load_state_dict(tensors)
    queries, keys, values = ours.project(theirs.input_layernorm(states), rotation)
    found = ours.finish(attend(queries, keys, values, mask), states)
    # Theirs norms and weighs in single precision.
    wanted = wanted[0] if isinstance(wanted, tuple) else wanted
    assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_queries_and_keys_can_be_asked_apart() -> None:
    layer = DraftLayer(replace(LAYER, qk_norm=True), 10)
    inputs = torch.randn(1, 3, 10, generator=torch.Generator().manual_seed(0))
    rotation = Rotary(LAYER)(torch.arange(3).unsqueeze(0), inputs)
    queries, keys, values = layer.project(inputs, rotation)
    assert torch.equal(layer.queries(inputs, rotation), queries)
    for found, wanted in zip(layer.keys_values(inputs, rotation), (keys, values), strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("kind", SCALED)
def test_positions_are_turned_as_transformers_turns_them(kind: str) -> None:
    config = replace(LAYER, rope=rope(kind))
    theirs = LlamaRotaryEmbedding(LlamaConfig(**settings_of(config)))
    positions = torch.tensor([[0, 1, 5, 63], [9, 2, 30, 7]])
    found, wanted = Rotary(config)(positions, LIKE), theirs(LIKE, positions)
    for ours, other in zip(found, wanted, strict=True):
        assert torch.allclose(ours, other)


def test_each_kind_and_theta_turns_otherwise() -> None:
    positions = torch.arange(60).unsqueeze(0)
    ropes = [*map(rope, SCALED), rope("default", 300.0)]
    cosines = [Rotary(replace(LAYER, rope=given))(positions, LIKE)[0] for given in ropes]
    same = [
        (first, second)
        for second in range(len(ropes))
        for first in range(second)
        if torch.allclose(cosines[first], cosines[second])
    ]
    assert same == [(0, 2)]  # "dynamic" differs beyond what the head was trained on only


@pytest.mark.parametrize("kind", SCALED)
def test_long_texts_of_others_change_no_rotation(kind: str) -> None:
    rotary = Rotary(replace(LAYER, rope=rope(kind)))
    positions = torch.arange(64).unsqueeze(0)
    before = rotary(positions, LIKE)
    longer = rotary(torch.arange(400).unsqueeze(0), LIKE)
    for found, wanted, first in zip(rotary(positions, LIKE), before, longer, strict=True):
        assert torch.equal(found, wanted)
        assert torch.equal(first[:, :64], wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_heads_in_half_precision_keep_their_frequencies(dtype: torch.dtype) -> None:
    layer = torch.nn.ModuleDict({"rotary": Rotary(LAYER)})
    positions = torch.tensor([[3, 1000, 2047]])
    wanted = layer["rotary"](positions, LIKE)
    layer.to(dtype)
    found = layer["rotary"](positions, LIKE.to(dtype))
    for ours, exact in zip(found, wanted, strict=True):
        assert ours.dtype == dtype
        assert torch.allclose(ours.float(), exact, atol=2**-8)


def test_a_product_of_turned_vectors_depends_on_their_distance_alone() -> None:
    draw = torch.Generator().manual_seed(4)
    query, key = torch.randn(2, 1, 1, 1, 6, generator=draw, dtype=torch.float64)
    rotary = Rotary(LAYER)

    def product(first: int, second: int) -> float:
        turned = [
            rotated(vector, rotary(torch.tensor([[at]]), query))
            for vector, at in ((query, first), (key, second))
        ]
        return float((turned[0] * turned[1]).sum())

    assert product(9, 4) == pytest.approx(product(25, 20), rel=1e-5)
    assert product(9, 4) != pytest.approx(product(9, 5), rel=1e-3)
    assert product(0, 0) == pytest.approx(float((query * key).sum()))
