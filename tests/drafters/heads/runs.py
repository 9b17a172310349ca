"""What tests of EAGLE heads share: seeded heads of any shape, run over a text, and their oracle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from specrag.drafters.heads.config import DraftLayerConfig, Eagle3Config, EagleConfig
from specrag.drafters.heads.eagle import EagleHead
from specrag.drafters.heads.eagle3 import Eagle3Head
from specrag.models.kv_cache import KVCache
from specrag.models.masks import additive
from tests.oracles.eagle_draft import EagleOracle

VOCAB, WIDTH, TARGET = 30, 16, 12
LAYER = DraftLayerConfig(WIDTH, 20, num_heads=4, num_kv_heads=2, head_dim=4)
TEXT = (3, 9, 4, 12, 7, 28)

LAYERS: Mapping[str, Mapping[str, Any]] = {
    "one head of keys": {"num_kv_heads": 1},
    "wide heads": {"head_dim": 6},
    "qk_norm": {"qk_norm": True},
    "qkv_bias": {"qkv_bias": True},
    "output_bias": {"output_bias": True},
    "mlp_bias": {"mlp_bias": True},
    "norm_eps": {"norm_eps": 0.5},
    "rope_theta": {"rope": {"rope_type": "default", "rope_theta": 30.0}},
    "short memory": {"max_positions": 2},
}
"""Other shapes of a layer than ``LAYER``."""


def seeded(config: EagleConfig | Eagle3Config) -> EagleHead | Eagle3Head:
    """A head whose tensors depend on their names alone, in double precision."""
    head = EagleHead(config) if isinstance(config, EagleConfig) else Eagle3Head(config)
    with torch.no_grad():
        for name, parameter in head.double().named_parameters():
            draw = torch.Generator().manual_seed(sum(map(ord, name)))
            parameter.copy_(torch.randn(parameter.shape, generator=draw).double() / 2)
    return head


def with_layer(
    config: EagleConfig | Eagle3Config, changes: Mapping[str, Any]
) -> EagleConfig | Eagle3Config:
    """The same head with another layer."""
    return replace(config, layer=replace(config.layer, **changes))


def features_of(head: EagleHead | Eagle3Head) -> list[torch.Tensor]:
    """Made-up states of the target, ``[1, positions, width]`` of each layer."""
    config = head.config
    width = config.target_hidden_size if isinstance(config, Eagle3Config) else WIDTH
    draw = torch.Generator().manual_seed(7)
    shape = (1, len(TEXT) - 1, width)
    return [torch.randn(shape, generator=draw).double() for _ in head.feature_layers]


def embeddings() -> torch.Tensor:
    """Made-up token embeddings, ``[vocab, width]``."""
    return torch.randn(VOCAB, WIDTH, generator=torch.Generator().manual_seed(8)).double()


@torch.no_grad()
def run(head: EagleHead | Eagle3Head) -> tuple[torch.Tensor, torch.Tensor]:
    """What the LM head reads behind the text and the next state, ``[width]`` each."""
    count, window = len(TEXT) - 1, head.layer_config.max_positions
    places = torch.arange(count)
    back = places.unsqueeze(1) - places
    allowed = ((back >= 0) & (back < window)).unsqueeze(0)
    cache = KVCache(head.num_layers, 1)
    cache.begin_pass(count)
    read, states = head(
        head.fuse(features_of(head)),
        embeddings()[list(TEXT[1:])].unsqueeze(0),
        places.unsqueeze(0),
        additive(allowed, torch.float64),
        cache,
    )
    return read[0, -1], states[0, -1]


def defined(head: EagleHead | Eagle3Head) -> tuple[torch.Tensor, torch.Tensor]:
    """The same by the oracle."""
    tensors = {key: value.detach() for key, value in head.state_dict().items()}
    oracle = EagleOracle(head.config, tensors, embeddings(), embeddings(), range(VOCAB))
    parts = features_of(head)
    states = [[part[0, at] for part in parts] for at in range(len(TEXT) - 1)]
    return oracle.said(TEXT, states, ())


def assert_as_defined(head: EagleHead | Eagle3Head) -> None:
    """The network computes what the oracle says."""
    for found, wanted in zip(run(head), defined(head), strict=True):
        assert torch.allclose(found, wanted, rtol=1e-5, atol=1e-6)


def assert_otherwise(head: EagleHead | Eagle3Head, base: EagleHead | Eagle3Head) -> None:
    """An option changes the draft, now or one level further down."""
    pairs = zip(run(head), run(base), strict=True)
    assert not all(torch.allclose(found, other, rtol=1e-3) for found, other in pairs)
