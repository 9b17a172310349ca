"""FeatureHead: what EAGLE heads of all generations have in common for the loop that drafts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import nn

from specrag.drafters.heads.config import DraftLayerConfig, Eagle3Config, EagleConfig
from specrag.drafters.heads.layer import DraftLayer, Rotary, attend
from specrag.models.kv_cache import KVCache


class FeatureHead(nn.Module, ABC):
    """A small decoder that reads a state and the embedding of the token that came next.

    At position t it reads the state of position t, the target's or its own, and token t+1, and
    says what token t+2 may be. Its own output is its next state.

    Args:
        layer: Shape of its layers.
        input_sizes: Width of what the attention of each layer reads.

    Attributes:
        config: Its shape.
        feature_layers: What of the target it reads, see ``TargetModel``.
    """

    config: EagleConfig | Eagle3Config
    feature_layers: tuple[int, ...]

    def __init__(self, layer: DraftLayerConfig, input_sizes: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DraftLayer(layer, size) for size in input_sizes)
        self.rotary = Rotary(layer)
        self.layer_config = layer

    @property
    def num_layers(self) -> int:
        """Number of layers, each with keys and values of its own."""
        return len(self.layers)

    @property
    def draft_layers(self) -> list[DraftLayer]:
        """The layers, in order."""
        return [layer for layer in self.layers if isinstance(layer, DraftLayer)]

    @abstractmethod
    def fuse(self, features: Sequence[torch.Tensor]) -> torch.Tensor:
        """Returns the states that the target's features stand for, ``[..., hidden]``.

        Args:
            features: Of each of ``feature_layers``, ``[..., target hidden]``.
        """

    @abstractmethod
    def enter(
        self, states: torch.Tensor, embedded: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns what the first attention reads, and the residual beside it.

        Args:
            states: ``[batch, n, hidden]``.
            embedded: Embedding of each next token, ``[batch, n, embedding]``.
        """

    def enter_later(self, number: int, states: torch.Tensor) -> torch.Tensor:
        """Returns what the attention of a later layer reads.

        Args:
            number: Of the layer, from 1.
            states: What left the layer before, ``[batch, n, hidden]``.
        """
        raise NotImplementedError(f"{type(self).__name__} has one layer")

    @abstractmethod
    def leave(self, outputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns what the LM head reads, and the next state.

        Args:
            outputs: What left the last layer, ``[batch, n, hidden]``.
        """

    def forward(
        self,
        states: torch.Tensor,
        embedded: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor,
        cache: KVCache,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Runs the layers over nodes of a pass that the cache has begun.

        Args:
            states: ``[batch, n, hidden]``.
            embedded: ``[batch, n, embedding]``.
            positions: ``[batch, n]``.
            mask: Additive, ``[batch, 1, n, slots]``.
            cache: With one layer for each of the head's.

        Returns:
            What the LM head reads and the next states, ``[batch, n, hidden]`` each.
        """
        rotation = self.rotary(positions, states)
        inputs, outputs = self.enter(states, embedded)
        for number, layer in enumerate(self.draft_layers):
            if number:
                inputs = self.enter_later(number, outputs)
            queries, keys, values = layer.project(inputs, rotation)
            keys, values = cache.update(keys, values, number)
            outputs = layer.finish(attend(queries, keys, values, mask), outputs)
        return self.leave(outputs)
