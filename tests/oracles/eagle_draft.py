"""What an EAGLE head says at a node, by its definition: the whole text anew for every node."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from specrag.drafters.heads.config import DraftLayerConfig, Eagle3Config, EagleConfig

Tensors = Mapping[str, torch.Tensor]


@dataclass
class EagleOracle:
    """A head as plain numbers: position by position, attention head by attention head, no cache.

    ``features[position]`` are the target's states of that position, from the lowest layer up;
    ``lm_head`` names ``token_ids``.
    """

    config: EagleConfig | Eagle3Config
    tensors: Tensors
    embedding: torch.Tensor
    lm_head: torch.Tensor
    token_ids: Sequence[int]

    def log_probs(
        self, text: Sequence[int], features: Sequence[Sequence[torch.Tensor]], path: Sequence[int]
    ) -> list[float]:
        """Log-probability of every token of the target behind a text and a drafted path."""
        read, _ = self.said(text, features, path)
        found = [-math.inf] * len(self.embedding)
        for token, value in zip(self.token_ids, _log_softmax(self.lm_head @ read), strict=True):
            found[token] = value
        return found

    def said(
        self, text: Sequence[int], features: Sequence[Sequence[torch.Tensor]], path: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What the LM head reads behind the path, and the head's own state there."""
        assert len(features) == len(text) - 1
        states = [self._fused(parts) for parts in features]
        tokens = list(text[1:])
        read, state = self._last(states, tokens)
        for token in path:  # each drafted token stands behind the head's own state of before
            states, tokens = [*states, state], [*tokens, token]
            read, state = self._last(states, tokens)
        return read, state

    def _last(
        self, states: Sequence[torch.Tensor], tokens: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        entered = [
            self._entered(state, self.embedding[token])
            for state, token in zip(states, tokens, strict=True)
        ]
        inputs, residuals = [i for i, _ in entered], [r for _, r in entered]
        for number in range(self.config.num_layers):
            if number:
                inputs = [self._norm(r, f"input_layernorms.{number - 1}") for r in residuals]
            # Of the last layer only the last position is asked for.
            last = number + 1 == self.config.num_layers
            wanted = range(len(tokens))[-1 if last else 0 :]
            residuals = self._layer(f"layers.{number}.", inputs, residuals, wanted)
        output = residuals[-1]
        if isinstance(self.config, EagleConfig):
            return (self._norm(output, "norm") if self.config.final_norm else output), output
        normed = self._norm(output, "norm")
        return normed, normed if self.config.norm_output else output

    def _fused(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        if isinstance(self.config, EagleConfig):
            return parts[0]
        if self.config.fc_norm:
            parts = [self._norm(part, f"fc_norm.{i}") for i, part in enumerate(parts)]
        joined = torch.cat(list(parts))
        if self.config.norm_before_fc:
            joined = self._norm(joined, "input_norm")
        return self._linear(joined, "fc")

    def _entered(
        self, state: torch.Tensor, embedded: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if isinstance(self.config, EagleConfig):
            if self.config.input_norms:
                embedded = self._norm(embedded, "embedding_layernorm")
                state = self._norm(state, "hidden_states_layernorm")
            joined = self._linear(torch.cat([embedded, state]), "fc")
            return joined, joined
        normed = self._norm(state, "hidden_norm")
        residual = normed if self.config.norm_before_residual else state
        return torch.cat([self._norm(embedded, "input_layernorm"), normed]), residual

    def _layer(
        self,
        name: str,
        inputs: Sequence[torch.Tensor],
        residuals: Sequence[torch.Tensor],
        wanted: range,
    ) -> list[torch.Tensor]:
        shape = self.config.layer
        made = {
            part: [self._heads(f"{name}self_attn.{part}", vector) for vector in inputs]
            for part in "qkv"
        }
        for part in "qk":
            if shape.qk_norm:
                norm = f"{name}self_attn.{part}_norm"
                made[part] = [[self._norm(head, norm) for head in heads] for heads in made[part]]
            made[part] = [
                [_turned(head, position, shape) for head in heads]
                for position, heads in enumerate(made[part])
            ]
        outputs = []
        for position in wanted:
            first = max(0, position + 1 - shape.max_positions)
            joined = []
            for head in range(shape.num_heads):
                shared = head * shape.num_kv_heads // shape.num_heads
                keys = [made["k"][at][shared] for at in range(first, position + 1)]
                values = [made["v"][at][shared] for at in range(first, position + 1)]
                query = made["q"][position][head]
                joined.append(_attended(query, keys, values))
            attended = self._linear(torch.cat(joined), f"{name}self_attn.o_proj")
            outputs.append(self._behind_attention(name, residuals[position] + attended))
        return outputs

    def _behind_attention(self, name: str, state: torch.Tensor) -> torch.Tensor:
        inner = self._norm(state, f"{name}post_attention_layernorm")
        gate = self._linear(inner, f"{name}mlp.gate_proj")
        inner = gate / (1 + torch.exp(-gate)) * self._linear(inner, f"{name}mlp.up_proj")
        return state + self._linear(inner, f"{name}mlp.down_proj")

    def _heads(self, name: str, vector: torch.Tensor) -> list[torch.Tensor]:
        return list(self._linear(vector, f"{name}_proj").view(-1, self.config.layer.head_dim))

    def _linear(self, vector: torch.Tensor, name: str) -> torch.Tensor:
        found = self.tensors[f"{name}.weight"] @ vector
        bias = self.tensors.get(f"{name}.bias")
        return found if bias is None else found + bias

    def _norm(self, vector: torch.Tensor, name: str) -> torch.Tensor:
        mean = vector.pow(2).sum() / len(vector)
        scale = self.tensors[f"{name}.weight"]
        return vector / torch.sqrt(mean + self.config.layer.norm_eps) * scale


def _turned(vector: torch.Tensor, position: int, shape: DraftLayerConfig) -> torch.Tensor:
    half = len(vector) // 2
    pairs = zip(vector[:half].tolist(), vector[half:].tolist(), strict=True)
    turned = []
    for axis, (x, y) in enumerate(pairs):
        angle = position * shape.rope["rope_theta"] ** (-axis / half)
        turned.append(
            (x * math.cos(angle) - y * math.sin(angle), y * math.cos(angle) + x * math.sin(angle))
        )
    return vector.new_tensor([x for x, _ in turned] + [y for _, y in turned])


def _attended(
    query: torch.Tensor, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]
) -> torch.Tensor:
    scores = [float(query @ key) / math.sqrt(len(query)) for key in keys]
    shares = [math.exp(score - max(scores)) for score in scores]
    found = torch.zeros_like(values[0])
    for share, value in zip(shares, values, strict=True):
        found += share / sum(shares) * value
    return found


def _log_softmax(logits: torch.Tensor) -> list[float]:
    values = logits.tolist()
    total = math.log(math.fsum(math.exp(value - max(values)) for value in values))
    return [value - max(values) - total for value in values]
