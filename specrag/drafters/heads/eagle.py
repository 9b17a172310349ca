"""EagleHead: the network of EAGLE-1 and EAGLE-2."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from specrag.drafters.heads.config import EagleConfig
from specrag.drafters.heads.feature_head import FeatureHead
from specrag.models.target import FINAL_NORM


class EagleHead(FeatureHead):
    """Predicts the target's next state before its LM head; that head then names the token.

    "EAGLE" (Li et al., 2024). The first layer norms nothing before its attention, as the authors
    left that norm out; the target's LM head reads the output as it is.

    Args:
        config: Its shape.
    """

    config: EagleConfig
    feature_layers = (FINAL_NORM,)

    def __init__(self, config: EagleConfig) -> None:
        width, eps = config.layer.hidden_size, config.layer.norm_eps
        super().__init__(config.layer, [width] * config.num_layers)
        self.config = config
        self.fc = nn.Linear(2 * width, width, bias=config.fc_bias)
        self.input_layernorms = nn.ModuleList(
            nn.RMSNorm(width, eps=eps) for _ in range(config.num_layers - 1)
        )
        if config.input_norms:
            self.embedding_layernorm = nn.RMSNorm(width, eps=eps)
            self.hidden_states_layernorm = nn.RMSNorm(width, eps=eps)
        if config.final_norm:
            self.norm = nn.RMSNorm(width, eps=eps)

    def fuse(self, features: Sequence[torch.Tensor]) -> torch.Tensor:
        """Returns the one feature as it is.

        Args:
            features: The states behind the target's final norm, ``[..., hidden]``.
        """
        (states,) = features
        return states

    def enter(
        self, states: torch.Tensor, embedded: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Joins embedding and state, the embedding first.

        Args:
            states: ``[batch, n, hidden]``.
            embedded: ``[batch, n, hidden]``.
        """
        if self.config.input_norms:
            embedded = self.embedding_layernorm(embedded)
            states = self.hidden_states_layernorm(states)
        joined: torch.Tensor = self.fc(torch.cat([embedded, states], dim=-1))
        return joined, joined

    def enter_later(self, number: int, states: torch.Tensor) -> torch.Tensor:
        """Norms the states, which only the first layer leaves out.

        Args:
            number: Of the layer, from 1.
            states: ``[batch, n, hidden]``.
        """
        normed: torch.Tensor = self.input_layernorms[number - 1](states)
        return normed

    def leave(self, outputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the outputs for both uses.

        Args:
            outputs: ``[batch, n, hidden]``.
        """
        return (self.norm(outputs) if self.config.final_norm else outputs), outputs
