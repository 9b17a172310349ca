"""The tree of a given size that holds the most expected tokens, from measured accuracies."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from specrag.drafters.trees.tree_shape import Ranks, TreeShape
from specrag.errors import ConfigError


def best_tree(accuracies: Sequence[Sequence[float]], num_nodes: int) -> TreeShape:
    """Returns the shape with the largest expected number of accepted tokens.

    A node is right when every rank on the way to it is; heads are taken to be right or wrong
    independently of each other, as in "Medusa" (Cai et al., 2024), so a node adds the product of
    the accuracies on its way. No node adds more than its parent, so taking the best node that is
    left, again and again, is exact.

    Args:
        accuracies: ``accuracies[depth][rank]``, the probability that the token of that rank is
            right; limits depth and branching of the tree.
        num_nodes: Most nodes; nodes that are never right are left out.

    Raises:
        ConfigError: An accuracy is no probability.
    """
    for depth, ranks in enumerate(accuracies):
        for rank, accuracy in enumerate(ranks):
            if not 0 <= accuracy <= 1:
                raise ConfigError(
                    f"an accuracy must be from 0 to 1, got {accuracy} of rank {rank} at depth "
                    f"{depth + 1}"
                )
    # Equal nodes: the shallower first, then the lower ranks, so the result is always the same.
    waiting: list[tuple[float, int, Ranks]] = [(-1.0, 0, ())]
    chosen: list[Ranks] = []
    while waiting and len(chosen) <= num_nodes:
        worth, depth, path = heapq.heappop(waiting)
        chosen.append(path)
        if depth == len(accuracies):
            continue
        for rank, accuracy in enumerate(accuracies[depth]):
            if accuracy > 0:
                heapq.heappush(waiting, (worth * accuracy, depth + 1, (*path, rank)))
    return TreeShape(tuple(chosen[1:]))


def expected_tokens(accuracies: Sequence[Sequence[float]], shape: TreeShape) -> float:
    """Returns how many drafted tokens of a shape are accepted on average.

    Args:
        accuracies: ``accuracies[depth][rank]``, see ``best_tree``.
        shape: No deeper or wider than the accuracies reach.
    """
    total = 0.0
    for path in shape.paths:
        worth = 1.0
        for depth, rank in enumerate(path):
            worth *= accuracies[depth][rank]
        total += worth
    return total
