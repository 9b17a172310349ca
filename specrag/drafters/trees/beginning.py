"""The tree that a model begins to fill: of a fixed form, or one that follows its confidence."""

from __future__ import annotations

import math

from specrag.decoding.budget import DraftBudget
from specrag.drafters.trees.dynamic_tree import DynamicTree
from specrag.drafters.trees.growing_tree import GrowingTree
from specrag.drafters.trees.tree_shape import StaticTree, TreeShape


def begin_tree(budget: DraftBudget, shape: TreeShape | None, min_confidence: float) -> GrowingTree:
    """Returns an empty tree.

    Args:
        budget: The largest tree allowed.
        shape: Its form, of which the budget may leave a part; None lets it follow the confidence.
        min_confidence: Least probability of a path worth drafting.
    """
    min_score = math.log(min_confidence) if min_confidence else -math.inf
    if shape is not None:
        return StaticTree(shape.within(budget), min_score)
    nodes, depth = budget.num_speculative_tokens, budget.max_depth
    return DynamicTree(nodes, depth, max(1, budget.branching), min_score=min_score)
