"""What a draft head looks like, in one vocabulary for all file formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specrag.errors import ConfigError

DEFAULT_ROPE: Mapping[str, Any] = {"rope_type": "default", "rope_theta": 10000.0}
"""Of a head that states nothing: its target's rotation is not inherited, also where it differs."""


@dataclass(frozen=True, slots=True)
class DraftLayerConfig:
    """The shape of a decoder layer of a head.

    Attributes:
        hidden_size: Width of its states.
        intermediate_size: Width of its feed-forward network.
        num_heads: Attention heads.
        num_kv_heads: Key/value heads, a divisor of ``num_heads``.
        head_dim: Width of a head; need not be ``hidden_size / num_heads``.
        norm_eps: Of every RMS norm.
        qkv_bias: Whether queries, keys and values have a bias.
        output_bias: Whether the attention's output has one.
        mlp_bias: Whether the feed-forward network has biases.
        qk_norm: Whether queries and keys are normed head by head, as in Qwen3.
        rope: Rotary parameters as transformers writes them: ``rope_type``, ``rope_theta`` and
            what the type needs.
        max_positions: Positions that the head was trained on.
    """

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float = 1e-6
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    rope: Mapping[str, Any] = field(default_factory=lambda: dict(DEFAULT_ROPE))
    max_positions: int = 2048

    def __post_init__(self) -> None:
        for name in ("hidden_size", "intermediate_size", "num_heads", "num_kv_heads", "head_dim"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} of a draft head must be at least 1, got {self!r}")
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(
                f"a draft head has {self.num_heads} attention heads, which {self.num_kv_heads} "
                "key/value heads do not divide"
            )


@dataclass(frozen=True, slots=True)
class EagleConfig:
    """An EAGLE-1 or EAGLE-2 head: these two have the same weights and differ in their trees.

    Attributes:
        layer: Of each layer.
        num_layers: Their number.
        vocab_size: Of the target.
        fc_bias: Whether the layer that joins embedding and state has a bias.
        input_norms: Whether embedding and state are normed before they are joined, as variants
            of HASS do.
        final_norm: Whether the output is normed before the target's LM head reads it.
    """

    layer: DraftLayerConfig
    vocab_size: int
    num_layers: int = 1
    fc_bias: bool = True
    input_norms: bool = False
    final_norm: bool = False


@dataclass(frozen=True, slots=True)
class Eagle3Config:
    """An EAGLE-3 head.

    Attributes:
        layer: Of each layer; the first one reads embedding and state side by side.
        vocab_size: Of the target.
        draft_vocab_size: Of the head; equal to ``vocab_size`` where it is not trimmed.
        target_hidden_size: Width of the target's states.
        feature_layers: Decoder layers of the target whose outputs are fused, from the lowest up.
        num_layers: Number of layers.
        fc_bias: Whether the fusing layer has a bias.
        norm_before_residual: Whether the residual starts at the normed state.
        norm_before_fc: Whether the fused features are normed together before the fusing layer.
        fc_norm: Whether each of them is normed on its own (EAGLE-3.1).
        norm_output: Whether the normed output becomes the next state, in place of the plain one.
        own_embedding: Whether the head has token embeddings of its own.
        own_lm_head: Whether it has an LM head of its own; else the target's is read, row by row.
    """

    layer: DraftLayerConfig
    vocab_size: int
    draft_vocab_size: int
    target_hidden_size: int
    feature_layers: tuple[int, ...]
    num_layers: int = 1
    fc_bias: bool = False
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    own_embedding: bool = False
    own_lm_head: bool = True


def default_feature_layers(num_layers: int) -> tuple[int, int, int]:
    """Returns the layers that an EAGLE-3 head reads when its file says nothing.

    The authors take the states that enter layers 2, n/2 and n-3, so that leave those before.

    Args:
        num_layers: Decoder layers of the target, at least 4.
    """
    return 1, num_layers // 2 - 1, num_layers - 4
