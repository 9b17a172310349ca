"""The contract of a target model: prefill, and one pass over a tree of nodes for each row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from specrag.models.kv_cache import KVCache

FINAL_NORM = -1
"""In place of a layer's index: the states behind the final norm, which the LM head reads."""


@dataclass(frozen=True, slots=True)
class TreePass:
    """The nodes that one pass evaluates, for each row a tree whose root is node 0.

    A row with fewer nodes than the widest is padded; a padding node sees only itself.

    A tree can be evaluated level by level. A pass whose ``visible`` is wider than its nodes are
    many keeps the nodes that are pending in the cache, and its own lie behind them: the last
    dimension counts all nodes that are pending after the pass, which are the nodes of the tree
    in the order in which they were evaluated. A node comes behind all of its ancestors.

    Attributes:
        token_ids: ``[batch, nodes]`` int64, the new nodes only.
        depths: ``[batch, nodes]`` int64; a node's position is the row's length plus its depth,
            which is 0 for the root and one more from level to level.
        visible: ``[batch, nodes, kept + nodes]`` bool; new node i attends to pending node j
            (ancestors, self). ``kept`` is 0 or the number of nodes pending in the cache.
    """

    token_ids: torch.Tensor
    depths: torch.Tensor
    visible: torch.Tensor


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """What a pass returned.

    Attributes:
        logits: ``[batch, nodes, vocab]`` in the model's dtype, unprocessed.
        features: Layer index, or ``FINAL_NORM``, to the hidden states that left it, ``[batch,
            nodes, hidden]`` in the model's dtype; filled for the layers that were asked for.
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
        no_speculation: Why this model only decodes plainly, one token of each row a pass; empty
            when it evaluates trees and rolls back.
        quantization: How its weights are packed; ``none`` as they are.
    """

    name: str
    vocab_size: int
    max_context: int
    eos_token_ids: tuple[int, ...]
    no_speculation: str = ""
    quantization: str = "none"

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the weights lie."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """Data type of the weights."""

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
        self,
        prompts: Sequence[Sequence[int]],
        cache: KVCache,
        num_logits: int = 1,
        feature_layers: Sequence[int] = (),
    ) -> ModelOutput:
        """Evaluates prompts and commits them to the cache.

        Args:
            prompts: Token ids of each row, at least one each; rows may differ in length.
            cache: Holds each row's earlier tokens; the prompts are appended.
            num_logits: How many of each row's last positions to return logits for.
            feature_layers: Decoder layers from 0 up, or ``FINAL_NORM``, to return the hidden
                states of.

        Returns:
            Logits ``[batch, num_logits, vocab]``, the last position last. A row shorter than
            ``num_logits`` repeats its first position at the front. Features, when asked for,
            cover every position of the prompts, ``[batch, longest, hidden]``: a row's own come
            first, and what lies behind them means nothing.

        Raises:
            ConfigError: The model has no such layer.
        """

    @abstractmethod
    def forward(
        self, tree_pass: TreePass, cache: KVCache, feature_layers: Sequence[int] = ()
    ) -> ModelOutput:
        """Evaluates one tree for each row; the nodes stay pending in the cache.

        Args:
            tree_pass: The nodes, or one more level of them, see ``TreePass``.
            cache: Holds each row's committed tokens; the caller commits the accepted path.
            feature_layers: Decoder layers, or ``FINAL_NORM``, to return the hidden states of.

        Returns:
            Logits ``[batch, nodes, vocab]`` of the new nodes and the features asked for.

        Raises:
            ConfigError: The model has no such layer.
            ValueError: The pass keeps only some of the pending nodes, or has more than one node
                a row where ``no_speculation`` says so.
        """
