"""Eagle3Head: the network of EAGLE-3."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from specrag.drafters.heads.config import Eagle3Config
from specrag.drafters.heads.feature_head import FeatureHead


class Eagle3Head(FeatureHead):
    """Reads three layers of the target and predicts tokens, without predicting its states.

    "EAGLE-3" (Li et al., 2025). Of the attention's input, embedding and state are normed apart
    and stand side by side; the residual is the state.

    Args:
        config: Its shape.
    """

    config: Eagle3Config

    def __init__(self, config: Eagle3Config) -> None:
        layer = config.layer
        width, eps = layer.hidden_size, layer.norm_eps
        super().__init__(layer, [2 * width, *[width] * (config.num_layers - 1)])
        self.config = config
        self.feature_layers = config.feature_layers
        count, given = len(config.feature_layers), config.target_hidden_size
        self.fc = nn.Linear(count * given, width, bias=config.fc_bias)
        self.input_layernorm = nn.RMSNorm(width, eps=eps)
        self.hidden_norm = nn.RMSNorm(width, eps=eps)
        self.input_layernorms = nn.ModuleList(
            nn.RMSNorm(width, eps=eps) for _ in range(config.num_layers - 1)
        )
        self.norm = nn.RMSNorm(width, eps=eps)
        if config.norm_before_fc:
            self.input_norm = nn.RMSNorm(count * given, eps=eps)
        if config.fc_norm:
            self.fc_norm = nn.ModuleList(nn.RMSNorm(given, eps=eps) for _ in range(count))
        if config.own_embedding:
            self.embed_tokens = nn.Embedding(config.vocab_size, width)
        if config.own_lm_head:
            self.lm_head = nn.Linear(width, config.draft_vocab_size, bias=False)

    def fuse(self, features: Sequence[torch.Tensor]) -> torch.Tensor:
        """Joins the target's layers to one state, ``[..., hidden]``.

        Args:
            features: From the lowest layer up, ``[..., target hidden]`` each.
        """
        if self.config.fc_norm:
            features = [norm(part) for norm, part in zip(self.fc_norm, features, strict=True)]
        joined = torch.cat(list(features), dim=-1)
        if self.config.norm_before_fc:
            joined = self.input_norm(joined)
        fused: torch.Tensor = self.fc(joined)
        return fused

    def enter(
        self, states: torch.Tensor, embedded: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Puts the normed embedding before the normed state.

        Args:
            states: ``[batch, n, hidden]``.
            embedded: ``[batch, n, hidden]``.
        """
        normed = self.hidden_norm(states)
        residual = normed if self.config.norm_before_residual else states
        return torch.cat([self.input_layernorm(embedded), normed], dim=-1), residual

    def enter_later(self, number: int, states: torch.Tensor) -> torch.Tensor:
        """Norms the states, as any decoder does.

        Args:
            number: Of the layer, from 1.
            states: ``[batch, n, hidden]``.
        """
        normed: torch.Tensor = self.input_layernorms[number - 1](states)
        return normed

    def leave(self, outputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Norms the outputs for the LM head; the plain ones go round.

        Args:
            outputs: ``[batch, n, hidden]``.
        """
        normed = self.norm(outputs)
        return normed, normed if self.config.norm_output else outputs
