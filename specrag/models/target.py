"""The contract of a target model: prefill, and one pass over a tree of nodes for each row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from specrag.models.kv_cache import KVCache


@dataclass(frozen=True, slots=True)
class TreePass:
    """The nodes that one pass evaluates, for each row a tree whose root is node 0.

    A row with fewer nodes than the widest is padded; a padding node sees only itself.

    Attributes:
        token_ids: ``[batch, nodes]`` int64.
        depths: ``[batch, nodes]`` int64; a node's position is the row's length plus its depth.
        visible: ``[batch, nodes, nodes]`` bool; node i attends to node j (ancestors, self).
    """

    token_ids: torch.Tensor
    depths: torch.Tensor
    visible: torch.Tensor


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """What a pass returned.

    Attributes:
        logits: ``[batch, nodes, vocab]`` in the model's dtype, unprocessed.
        features: Layer index to the hidden states that left it, ``[batch, nodes, hidden]``;
            filled for the layers named in ``TargetModel.feature_layers``.
    """

    logits: torch.Tensor
    features: Mapping[int, torch.Tensor] = field(default_factory=dict)


class TargetModel(ABC):
    """The model whose output is reproduced exactly.

    Attributes:
        name: What users call it.
        vocab_size: Width of the logits.
        max_context: Most tokens a row may hold, prompt included.
        eos_token_ids: Tokens that end an answer.
        feature_layers: Layers whose hidden states each pass returns; drafters set it.
    """

    name: str
    vocab_size: int
    max_context: int
    eos_token_ids: tuple[int, ...]
    feature_layers: tuple[int, ...] = ()

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A string that changes with the weights, but not with the precision they run in."""

    @abstractmethod
    def new_cache(self, batch_size: int, capacity: int = 512) -> KVCache:
        """Returns an empty cache that fits this model.

        Args:
            batch_size: Number of rows.
            capacity: Tokens to reserve for each row; the cache grows when needed.
        """

    @abstractmethod
    def prefill(
        self, prompts: Sequence[Sequence[int]], cache: KVCache, num_logits: int = 1
    ) -> ModelOutput:
        """Evaluates prompts and commits them to the cache.

        Args:
            prompts: Token ids of each row, at least one each; rows may differ in length.
            cache: Holds each row's earlier tokens; the prompts are appended.
            num_logits: How many of each row's last positions to return logits for.

        Returns:
            Logits ``[batch, num_logits, vocab]``, the last position last. A row shorter than
            ``num_logits`` repeats its first position at the front. Features, when asked for,
            cover the same positions.
        """

    @abstractmethod
    def forward(self, tree_pass: TreePass, cache: KVCache) -> ModelOutput:
        """Evaluates one tree for each row; the nodes stay pending in the cache.

        Args:
            tree_pass: The nodes.
            cache: Holds each row's committed tokens; the caller commits the accepted path.

        Returns:
            Logits ``[batch, nodes, vocab]`` and the features asked for.
        """
