"""DynamicTree: the tree that follows the draft model's confidence, after EAGLE-2."""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import nsmallest

from specrag.drafters.trees.growing_tree import GrowingTree


class DynamicTree(GrowingTree):
    """Expands the likeliest nodes of each level and drafts the likeliest of all that were scored.

    "EAGLE-2" (Li et al., 2024): a node's worth is the draft model's probability of its whole path.
    Of each level the best ``width`` nodes are evaluated; all their children are candidates; at the
    end the best ``num_nodes`` candidates are drafted, leaves that were never evaluated among them.
    A node whose children could not be among the best any more is not evaluated, which leaves the
    tree as it is and saves work.

    Args:
        num_nodes: Most nodes of the tree.
        max_depth: Deepest level.
        branching: Most children of a node.
        width: Nodes evaluated of a level; None stands for ``branching``, as in the paper.
        min_score: Candidates with a lower log-probability are dropped.
    """

    def __init__(
        self,
        num_nodes: int,
        max_depth: int,
        branching: int,
        *,
        width: int | None = None,
        min_score: float = -math.inf,
    ) -> None:
        super().__init__(max_depth, min_score)
        self._num_nodes = num_nodes
        self._branching = branching
        self._width = branching if width is None else width

    def _num_children(self, parent: int) -> int:
        return self._branching

    def _next_frontier(self, level: Sequence[int]) -> list[int]:
        survivors = nsmallest(self._width, level, key=self.strict_order)
        # A child comes behind its parent in the order, so a parent in the last place has none.
        useful = set(self._drafted()[: self._num_nodes - 1])
        return [node for node in survivors if node in useful]

    def _drafted(self) -> list[int]:
        return nsmallest(self._num_nodes, range(len(self.candidates)), key=self.strict_order)
