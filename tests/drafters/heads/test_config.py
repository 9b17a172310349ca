"""Shapes of heads: what is impossible is refused."""

from __future__ import annotations

from typing import Any

import pytest

from specrag.drafters.heads.config import DEFAULT_ROPE, DraftLayerConfig, default_feature_layers
from specrag.errors import ConfigError

SIZES: dict[str, Any] = {
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 2,
}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("value", [0, -4])
def test_sizes_are_at_least_one(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"{name} of a draft head must be at least 1") as caught:
        DraftLayerConfig(**{**SIZES, name: value})
    assert f"{name}={value}" in str(caught.value)


def test_key_heads_divide_the_heads() -> None:
    with pytest.raises(ConfigError, match="4 attention heads, which 3 key/value heads"):
        DraftLayerConfig(**{**SIZES, "num_kv_heads": 3})


def test_the_usual_rotation_is_not_shared() -> None:
    first, second = DraftLayerConfig(**SIZES), DraftLayerConfig(**SIZES)
    assert first == second
    assert first.rope == DEFAULT_ROPE
    assert first.rope is not second.rope
    assert first.rope is not DEFAULT_ROPE


@pytest.mark.parametrize(
    ("num_layers", "layers"), [(4, (1, 1, 0)), (30, (1, 14, 26)), (32, (1, 15, 28))]
)
def test_the_authors_layers(num_layers: int, layers: tuple[int, ...]) -> None:
    assert default_feature_layers(num_layers) == layers
