"""LeanDecoder: Llama and its relatives in few operations, with packed weights."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from specrag.models.kv_cache import KVCache
from specrag.models.quantization import PackedLinear, packed
from specrag.models.target import FINAL_NORM
from specrag.models.trimmed_head import TrimmedHead
from specrag.models.windows import attention_windows

LEAN = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Model types that a ``LeanDecoder`` computes."""


class _Norms(NamedTuple):
    """Of queries and keys, ``[heads + kv heads, 1, head_dim]``, for models that have them."""

    weight: torch.Tensor
    eps: float


class LeanLayer(nn.Module):
    """One layer: queries, keys and values in one product, gate and up in another.

    The weights of the norms are a part of the products behind them, so that of a norm only one
    number a row is left, which the product is multiplied by.

    Args:
        layer: Of transformers.
        quantization: Of its weights.
    """

    def __init__(self, layer: Any, quantization: str) -> None:
        super().__init__()
        attention, mlp = layer.self_attn, layer.mlp
        self.head_dim = int(attention.head_dim)
        self.num_heads = attention.q_proj.out_features // self.head_dim
        self.num_kv_heads = attention.k_proj.out_features // self.head_dim
        self.scale = float(attention.scaling)
        first, second = layer.input_layernorm, layer.post_attention_layernorm
        self.first_eps, self.second_eps = _eps(first), _eps(second)
        project = [attention.q_proj, attention.k_proj, attention.v_proj]
        self.project = _together(project, first.weight, quantization)
        self.leave = _together([attention.o_proj], None, quantization)
        self.widen = _together([mlp.gate_proj, mlp.up_proj], second.weight, quantization)
        self.narrow = _together([mlp.down_proj], None, quantization)
        self.norms = self._norms_of(attention)

    def _norms_of(self, attention: Any) -> _Norms | None:
        queries, keys = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
        if queries is None or keys is None:
            return None
        rows = [queries.weight] * self.num_heads + [keys.weight] * self.num_kv_heads
        return _Norms(torch.stack(rows).detach().float().unsqueeze(1), _eps(queries))

    def forward(
        self,
        states: torch.Tensor,
        rotation: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor,
        cache: Any,
    ) -> torch.Tensor:
        """Returns the states behind this layer.

        Args:
            states: ``[batch, nodes, hidden]``.
            rotation: Cosines and signed sines, ``[batch, 1, nodes, head_dim]``.
            mask: Added to scores, ``[batch, 1, groups * nodes, slots]``.
            cache: The layer of a ``KVCache``.
        """
        # Parts are run by `forward`: the hooks of a call, which nobody sets here, cost more than a
        # small product.
        batch, nodes, _ = states.shape
        heads, kv_heads, width = self.num_heads, self.num_kv_heads, self.head_dim
        found = self.project.forward(states, _inverse_size(states, self.first_eps))
        found = found.view(batch, nodes, heads + 2 * kv_heads, width).transpose(1, 2)
        turned, values = found[:, : heads + kv_heads], found[:, heads + kv_heads :]
        if self.norms is not None:
            turned = turned * _inverse_size(turned, self.norms.eps) * self.norms.weight
        cosines, sines = rotation
        turned = torch.addcmul(turned * cosines, turned.roll(width // 2, -1), sines)
        keys, values = cache.update(turned[:, heads:], values)
        # The queries that share a key are rows of one query head: no key is copied for them.
        queries = turned[:, :heads].reshape(batch, kv_heads, -1, width)
        attended = F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, scale=self.scale
        )
        attended = attended.view(batch, heads, nodes, width).transpose(1, 2)
        states = states + self.leave.forward(attended.reshape(batch, nodes, heads * width))
        wide = self.widen.forward(states, _inverse_size(states, self.second_eps))
        gate, up = wide.chunk(2, dim=-1)
        behind: torch.Tensor = states + self.narrow.forward(F.silu(gate).mul_(up))
        return behind


class LeanDecoder(nn.Module):
    """A decoder and its LM head.

    The passes of transformers spend more time between the products than in them: on two cores a
    token of SmolLM2-135M took 85 ms, of which the products were 27.

    Args:
        model: A causal LM of a type in ``LEAN``; its linear layers may be dropped afterwards.
        quantization: Of its weights.
    """

    def __init__(self, model: Any, quantization: str) -> None:
        super().__init__()
        decoder = model.get_decoder()
        self.embed = decoder.embed_tokens
        self.rotary = decoder.rotary_emb
        self.layers = nn.ModuleList(LeanLayer(layer, quantization) for layer in decoder.layers)
        self.norm_weight = decoder.norm.weight
        self.norm_eps = _eps(decoder.norm)
        config = model.config.get_text_config()
        # Query heads that share a key.
        self._groups = int(config.num_attention_heads) // int(config.num_key_value_heads)
        head = model.get_output_embeddings()
        self._trimmed = head if isinstance(head, TrimmedHead) else None
        rows = head.rows if isinstance(head, TrimmedHead) else head.weight
        self.head = packed(
            rows.float() * self.norm_weight.float(), head.bias, quantization=quantization
        )

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor,
        cache: KVCache,
        *,
        columns: torch.Tensor | None = None,
        feature_layers: Collection[int] = (),
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """Evaluates the nodes of a pass.

        Args:
            token_ids: ``[batch, nodes]``.
            positions: ``[batch, nodes]``.
            mask: Added to scores, ``[batch, 1, nodes, slots]``.
            cache: Has begun the pass.
            columns: Nodes to return logits of; None for all.
            feature_layers: Layers to return the states of.

        Returns:
            Logits ``[batch, columns, vocab]`` and features ``[batch, nodes, hidden]`` by layer.
        """
        states = self.embed(token_ids).float()
        cosines, sines = self.rotary(states, positions)
        half = cosines.shape[-1] // 2
        signed = torch.cat([-sines[..., :half], sines[..., half:]], dim=-1)
        rotation = cosines.unsqueeze(1), signed.unsqueeze(1)
        mask = mask.repeat(1, 1, self._groups, 1)
        features: dict[int, torch.Tensor] = {}
        for number, layer in enumerate(self.layers):
            states = layer.forward(states, rotation, mask, cache.layers[number])
            if number in feature_layers:
                features[number] = states
        if FINAL_NORM in feature_layers:
            features[FINAL_NORM] = states * _inverse_size(states, self.norm_eps) * self.norm_weight
        if columns is not None:
            states = states[:, columns]
        logits = self.head.forward(states, _inverse_size(states, self.norm_eps))
        return logits if self._trimmed is None else self._trimmed.widened(logits), features


def lean_obstacle(model: Any) -> str:
    """Returns why a ``LeanDecoder`` cannot compute a model; empty when it can.

    Args:
        model: A transformers causal LM.
    """
    config = model.config.get_text_config()
    reasons = {
        f"is of the type {config.model_type}": config.model_type not in LEAN,
        f"uses {getattr(config, 'hidden_act', None)}": getattr(config, "hidden_act", "") != "silu",
        "mixes kinds of attention": len(attention_windows(model).by_kind) > 1,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _inverse_size(states: torch.Tensor, eps: float) -> torch.Tensor:
    """What an RMS norm multiplies each row by."""
    power: torch.Tensor = torch.linalg.vecdot(states, states).unsqueeze(-1)
    return power.mul_(1 / states.shape[-1]).add_(eps).rsqrt_()


def _eps(norm: Any) -> float:
    return float(getattr(norm, "variance_epsilon", getattr(norm, "eps", 1e-6)))


def _together(linears: list[Any], norm: torch.Tensor | None, quantization: str) -> PackedLinear:
    """Several layers that read the same as one, with the norm before them."""
    weight = torch.cat([linear.weight.detach().float() for linear in linears])
    if norm is not None:
        weight = weight * norm.detach().float()
    biases = [linear.bias for linear in linears]
    bias = None
    if any(found is not None for found in biases):
        bias = torch.cat(
            [
                torch.zeros(linear.out_features) if found is None else found.detach().float()
                for linear, found in zip(linears, biases, strict=True)
            ]
        )
    return packed(weight, bias, quantization=quantization)
