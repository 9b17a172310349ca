"""DraftLayer: one decoder layer of a draft head, and the rotation of its positions."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from specrag.drafters.heads.config import DraftLayerConfig

Rotation = tuple[torch.Tensor, torch.Tensor]
"""Cosines and sines, ``[batch, n, head_dim]`` each."""


class DraftLayer(nn.Module):
    """A Llama layer; with a wider input to its attention, the first layer of an EAGLE-3 head.

    The steps stand apart, so that training can attend in its own way.

    Args:
        config: Its shape.
        input_size: Width of what queries, keys and values are made of.
    """

    def __init__(self, config: DraftLayerConfig, input_size: int | None = None) -> None:
        super().__init__()
        width, heads, size = config.hidden_size, config.num_heads, config.head_dim
        given, bias = input_size or width, config.qkv_bias
        self.self_attn = nn.ModuleDict(
            {
                "q_proj": nn.Linear(given, heads * size, bias=bias),
                "k_proj": nn.Linear(given, config.num_kv_heads * size, bias=bias),
                "v_proj": nn.Linear(given, config.num_kv_heads * size, bias=bias),
                "o_proj": nn.Linear(heads * size, width, bias=config.output_bias),
            }
        )
        if config.qk_norm:
            self.self_attn["q_norm"] = nn.RMSNorm(size, eps=config.norm_eps)
            self.self_attn["k_norm"] = nn.RMSNorm(size, eps=config.norm_eps)
        inner, bias = config.intermediate_size, config.mlp_bias
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(width, inner, bias=bias),
                "up_proj": nn.Linear(width, inner, bias=bias),
                "down_proj": nn.Linear(inner, width, bias=bias),
            }
        )
        self.post_attention_layernorm = nn.RMSNorm(width, eps=config.norm_eps)
        self.config = config

    def project(
        self, inputs: torch.Tensor, rotation: Rotation
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns queries, keys and values, ``[batch, heads, n, head_dim]``, positions included.

        Args:
            inputs: ``[batch, n, input_size]``.
            rotation: Of the positions.
        """
        return self.queries(inputs, rotation), *self.keys_values(inputs, rotation)

    def queries(self, inputs: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        """Returns queries alone, ``[batch, heads, n, head_dim]``.

        Args:
            inputs: ``[batch, n, input_size]``.
            rotation: Of the positions.
        """
        queries = self._heads("q_proj", inputs)
        if self.config.qk_norm:
            queries = self.self_attn["q_norm"](queries)
        return rotated(queries, rotation)

    def keys_values(
        self, inputs: torch.Tensor, rotation: Rotation
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns keys and values alone, ``[batch, kv_heads, n, head_dim]`` each.

        Args:
            inputs: ``[batch, n, input_size]``.
            rotation: Of the positions.
        """
        keys = self._heads("k_proj", inputs)
        if self.config.qk_norm:
            keys = self.self_attn["k_norm"](keys)
        return rotated(keys, rotation), self._heads("v_proj", inputs)

    def finish(self, attended: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """Returns the states that leave the layer, ``[batch, n, hidden]``.

        Args:
            attended: What each head found, ``[batch, heads, n, head_dim]``.
            residual: ``[batch, n, hidden]``.
        """
        joined = attended.transpose(1, 2).flatten(2)
        states = residual + self.self_attn["o_proj"](joined)
        inner = self.post_attention_layernorm(states)
        gate = F.silu(self.mlp["gate_proj"](inner)) * self.mlp["up_proj"](inner)
        found: torch.Tensor = states + self.mlp["down_proj"](gate)
        return found

    def _heads(self, name: str, inputs: torch.Tensor) -> torch.Tensor:
        flat: torch.Tensor = self.self_attn[name](inputs)
        return flat.view(*flat.shape[:-1], -1, self.config.head_dim).transpose(1, 2)


class Rotary(nn.Module):
    """The rotation of positions, of any kind that transformers knows.

    Frequencies are those of texts as long as the head was trained on, whatever is read: kinds
    that change them with the length would turn keys that are cached already, and rows of a batch
    by each other's length. A head looks no further back than that anyway.

    Args:
        config: Of the layers that use it.
    """

    def __init__(self, config: DraftLayerConfig) -> None:
        super().__init__()
        shape = LlamaConfig(
            # Only head_dim counts; transformers wants a width that the heads divide.
            hidden_size=config.num_heads * config.head_dim,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            max_position_embeddings=config.max_positions,
            rope_parameters=dict(config.rope),
        )
        found = LlamaRotaryEmbedding(shape)
        # No buffer: in half precision a position of 1000 would be turned wrong by a radian.
        self._frequencies = found.inv_freq.detach().clone().float()
        self._scaling = float(found.attention_scaling)

    def forward(self, positions: torch.Tensor, like: torch.Tensor) -> Rotation:
        """Returns the rotation of some positions.

        Args:
            positions: ``[batch, n]``.
            like: Any tensor of the wanted type and device.
        """
        self._frequencies = self._frequencies.to(like.device)
        angles = positions.unsqueeze(-1).float() * self._frequencies
        angles = torch.cat([angles, angles], dim=-1)
        cosines, sines = angles.cos() * self._scaling, angles.sin() * self._scaling
        return cosines.to(like.dtype), sines.to(like.dtype)


def rotated(states: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """Turns queries or keys to their positions, the two halves of a head being the two axes.

    Args:
        states: ``[batch, heads, n, head_dim]``.
        rotation: Of the positions.
    """
    cosines, sines = (part.unsqueeze(1) for part in rotation)
    first, second = states.chunk(2, dim=-1)
    return states * cosines + torch.cat([-second, first], dim=-1) * sines


def attend(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """Attends with grouped heads, ``[batch, heads, n, head_dim]``.

    Args:
        queries: ``[batch, heads, n, head_dim]``.
        keys: ``[batch, kv_heads, slots, head_dim]``.
        values: As the keys.
        mask: Additive, ``[batch, 1, n, slots]``.
    """
    return F.scaled_dot_product_attention(
        queries, keys, values, attn_mask=mask, enable_gqa=queries.shape[1] != keys.shape[1]
    )
