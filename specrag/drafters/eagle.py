"""EagleDrafter: heads that draft from the target's hidden states, EAGLE-1, EAGLE-2 and EAGLE-3."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specrag.decoding.budget import PassCosts
from specrag.decoding.drafter import DraftContext, Drafter
from specrag.drafters.heads.feature_head import FeatureHead
from specrag.drafters.heads.projection import Projection
from specrag.drafters.heads.surroundings import (
    Embed,
    check_sizes,
    embedding_of,
    fitted,
    projection_of,
)
from specrag.drafters.neural.head_cache import HeadCache, HeadLevel
from specrag.drafters.neural.head_session import HeadOptions, HeadSession
from specrag.models.target import TargetModel
from specrag.models.tokenizer import Tokenizer


class EagleDrafter(Drafter):
    """Reads the target's states, and drafts on from its own.

    "EAGLE" (Li et al., 2024) drafts the target's next states, "EAGLE-2" grows its trees by
    confidence, "EAGLE-3" (2025) reads three layers and drafts tokens. A chain is a tree of
    branching 1, so one drafter serves all; the head makes the difference.

    Args:
        head: A head of any generation.
        token_ids: Tokens that the head can say, in the order of its LM head where it has one;
            None where it can say all.
        options: How it drafts.
        name: What it is called in statistics.
    """

    def __init__(
        self,
        head: FeatureHead,
        token_ids: torch.Tensor | None = None,
        *,
        options: HeadOptions | None = None,
        name: str = "eagle",
    ) -> None:
        self.name = name
        self.options = options or HeadOptions()
        self.feature_layers = head.feature_layers
        # What was given stays as it is: a head may be bound to a target of another precision later.
        self._given = self._head = head.eval()
        self._token_ids = token_ids
        self._target: TargetModel | None = None
        self._embed: Embed | None = None
        self._projection: Projection | None = None

    def bind(
        self, target: TargetModel, tokenizer: Tokenizer, costs: PassCosts | None = None
    ) -> None:
        """Takes embeddings and LM head of the target, in its precision and on its device.

        Args:
            target: Whose states are read.
            tokenizer: The target's; not used.
            costs: What a pass of the target costs; nothing depends on it.

        Raises:
            ConfigError: The head was made for another model.
            ModelError: The target's embeddings or LM head cannot be read.
        """
        if self._target is target:
            return
        check_sizes(self._given, target)
        head = fitted(self._given, target)
        embed = embedding_of(head, target)
        projection = projection_of(head, target, self._token_ids)
        self._head, self._embed, self._projection = head, embed, projection
        self.levels = (HeadLevel(head, embed, projection),)
        self._target, self.device = target, target.device.type

    def open(self, contexts: Sequence[DraftContext]) -> HeadSession:
        """Starts drafting for a batch.

        Args:
            contexts: One for each row.
        """
        unbound = f"{self.name} must be bound to a target before it is opened"
        assert self._embed is not None, unbound
        assert self._projection is not None, unbound
        cache = HeadCache(self._head, self._embed)
        projection = self._projection.open(contexts)
        return HeadSession(self.name, cache, projection, self.options, contexts)
