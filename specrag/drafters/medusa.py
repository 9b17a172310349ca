"""Drafting with Medusa heads: each names one token further ahead, all from one state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from specrag.decoding.budget import DraftBudget, PassCosts
from specrag.decoding.drafter import DraftContext, Drafter
from specrag.drafters.heads.logit_rule import hidden_size_of
from specrag.drafters.heads.medusa import MedusaHeads
from specrag.drafters.heads.projection import Projection
from specrag.drafters.heads.surroundings import fitted
from specrag.drafters.neural.medusa_level import MedusaLevel
from specrag.drafters.neural.medusa_session import MedusaSession
from specrag.drafters.trees.best_tree import best_tree
from specrag.drafters.trees.dynamic_tree import DynamicTree
from specrag.drafters.trees.growing_tree import GrowingTree
from specrag.drafters.trees.tree_shape import StaticTree, TreeShape
from specrag.errors import ConfigError
from specrag.models.target import TargetModel
from specrag.models.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class _Bound:
    """What a drafter knows once it has a target."""

    target: TargetModel
    heads: MedusaHeads
    projections: tuple[Projection, ...]


class MedusaDrafter(Drafter):
    """Lets Medusa heads guess, and the target verify, without any change of its output.

    "Medusa" (Cai et al., 2024), but for the acceptance: the authors' own takes tokens that the
    target finds likely enough, which changes the output. Here verification is exact.

    A tree has the form of ``shape``; or the form that holds the most expected tokens for its
    budget by ``accuracies``; or else it follows the heads' confidence, text by text.

    Args:
        heads: Trained for the target.
        projection_ids: The target's tokens that the heads name: those of their LM heads, or those
            to keep of the target's. None names all. Where rows of a whole LM head are left out,
            those of the tokens of prompt and passages are read too.
        accuracies: ``accuracies[head][rank]``, see ``measured_accuracies``.
        shape: A fixed form.
        min_confidence: Least probability of a path worth drafting; not used where rejection
            sampling verifies.
        name: What it is called in statistics.

    Raises:
        ConfigError: An option is no probability, or the accuracies are of another number of heads.
    """

    feature_layers = MedusaHeads.feature_layers

    def __init__(
        self,
        heads: MedusaHeads,
        projection_ids: torch.Tensor | Sequence[int] | None = None,
        accuracies: Sequence[Sequence[float]] | None = None,
        name: str = "medusa",
        *,
        shape: TreeShape | None = None,
        min_confidence: float = 0.0,
    ) -> None:
        if not 0 <= min_confidence <= 1:
            raise ConfigError(f"min_confidence must be from 0 to 1, got {min_confidence}")
        if accuracies is not None and len(accuracies) != heads.num_heads:
            raise ConfigError(
                f"there are accuracies of {len(accuracies)} heads, but {heads.num_heads} heads",
                hint="measure them again with these heads",
            )
        self.name = name
        self.heads = heads
        self._token_ids = projection_ids
        self._accuracies = accuracies
        self._shape = shape
        self._min_score = math.log(min_confidence) if min_confidence else -math.inf
        self._shapes: dict[tuple[DraftBudget, int], TreeShape] = {}
        self._bound: _Bound | None = None

    def bind(
        self, target: TargetModel, tokenizer: Tokenizer, costs: PassCosts | None = None
    ) -> None:
        """Takes what the heads need of the target, and refuses heads that cannot be its.

        Args:
            target: Whose tokens are guessed.
            tokenizer: The target's; not used.
            costs: What a pass of the target costs; nothing depends on it.

        Raises:
            ConfigError: Hidden size, vocabulary or draft tokens are not the target's.
            ModelError: The target's LM head cannot be read.
        """
        if self._bound is not None and self._bound.target is target:
            return
        heads = fitted(self.heads, target)
        projections = self._projections(heads, target)
        self._bound = _Bound(target, heads, projections)
        self.levels = (MedusaLevel(heads, projections[0]),)
        self.device = target.device.type

    def open(self, contexts: Sequence[DraftContext]) -> MedusaSession:
        """Starts drafting for a batch.

        Args:
            contexts: One for each row.
        """
        bound = self._bound
        assert bound, f"{self.name} must be bound to a target before it is opened"
        return MedusaSession(self.name, bound.heads, bound.projections, self._new_tree, contexts)

    def _projections(self, heads: MedusaHeads, target: TargetModel) -> tuple[Projection, ...]:
        config = heads.config
        if config.vocab_size != target.vocab_size:
            raise ConfigError(
                f"the Medusa heads {self.name!r} were made for {config.vocab_size} tokens, but "
                f"{target.name!r} has {target.vocab_size}",
                hint="take heads that were trained for this model",
            )
        width = hidden_size_of(target)
        if width not in (None, config.hidden_size):
            raise ConfigError(
                f"the Medusa heads {self.name!r} read states of width {config.hidden_size}, but "
                f"those of {target.name!r} have {width}",
                hint="take heads that were trained for this model",
            )
        if config.own_lm_head:
            return tuple(
                Projection.own(weight, self._token_ids, target.vocab_size)
                for weight in heads.own_weights
            )
        return (Projection.shared(target, self._token_ids).packed(target.quantization),)

    def _new_tree(self, budget: DraftBudget, first_head: int) -> GrowingTree:
        nodes, depth = budget.num_speculative_tokens, budget.max_depth
        if self._shape is None and self._accuracies is None:
            # To evaluate a node costs nothing, so no level needs to be narrow.
            return DynamicTree(
                nodes, depth, budget.branching, width=nodes, min_score=self._min_score
            )
        key = budget, first_head
        if key not in self._shapes:
            self._shapes[key] = self._best_shape(budget, first_head)
        return StaticTree(self._shapes[key], self._min_score)

    def _best_shape(self, budget: DraftBudget, first_head: int) -> TreeShape:
        if self._shape is not None:
            return self._shape.within(budget)
        assert self._accuracies is not None, "a shape comes from accuracies"
        last = first_head + budget.max_depth
        levels = [ranks[: budget.branching] for ranks in self._accuracies[first_head:last]]
        return best_tree(levels, budget.num_speculative_tokens)
