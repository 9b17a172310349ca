"""TreeShape: a draft tree whose form is fixed beforehand, node by node in ranks of children."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from specrag.decoding.budget import DraftBudget
from specrag.decoding.tree import ROOT
from specrag.drafters.trees.growing_tree import GrowingTree
from specrag.errors import ConfigError

Ranks = tuple[int, ...]
"""The way to a node: 0 is the likeliest child, 1 the second likeliest, and so on."""


@dataclass(frozen=True, slots=True)
class TreeShape:
    """Which nodes a static tree has, as "Medusa" (Cai et al., 2024) writes them.

    Attributes:
        paths: The way to each node. Nodes likely to be accepted come first: those with few levels
            and low ranks, and parents before their children.
    """

    paths: tuple[Ranks, ...]

    def __post_init__(self) -> None:
        known = set(self.paths)
        for path in self.paths:
            if not path or any(rank < 0 for rank in path):
                raise ConfigError(
                    f"a path of a tree shape needs at least one rank, 0 or more, got {path}",
                    hint="the likeliest child of the root is (0,)",
                )
            if len(path) > 1 and path[:-1] not in known:
                raise ConfigError(
                    f"the tree shape has {path} without its parent {path[:-1]}",
                    hint=f"add {path[:-1]}, or leave out what is below it",
                )
        ordered = sorted(known, key=lambda path: (len(path) + sum(path), len(path), path))
        object.__setattr__(self, "paths", tuple(ordered))

    @classmethod
    def from_paths(cls, paths: Iterable[Sequence[int]]) -> TreeShape:
        """Returns the shape with these nodes, in any order.

        Args:
            paths: Ranks of children from the root down, such as ``(0,), (1,), (0, 0)``.

        Raises:
            ConfigError: A path is empty, has a negative rank, or its parent is not there.
        """
        return cls(tuple(tuple(path) for path in paths))

    @classmethod
    def chain(cls, depth: int) -> TreeShape:
        """Returns the shape without branches.

        Args:
            depth: Number of nodes.
        """
        return cls.full(1, depth)

    @classmethod
    def full(cls, branching: int, depth: int) -> TreeShape:
        """Returns the shape in which every node above the last level has all its children.

        Args:
            branching: Children of each node.
            depth: Number of levels.

        Raises:
            ConfigError: There would be no child at all, or less than no level.
        """
        if branching < 1 or depth < 0:
            raise ConfigError(
                "a full tree needs branching of at least 1 and a depth of at least 0, got "
                f"branching={branching} and depth={depth}"
            )
        levels = (product(range(branching), repeat=level) for level in range(1, depth + 1))
        return cls(tuple(path for level in levels for path in level))

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def max_depth(self) -> int:
        """Depth of the deepest node, 0 for an empty shape."""
        return max(map(len, self.paths), default=0)

    def within(self, budget: DraftBudget) -> TreeShape:
        """Returns the part of the shape that a budget allows, the likeliest nodes of it.

        Args:
            budget: The largest tree allowed. A rank counts as an alternative even where the
                ranks before it are left out.
        """
        allowed = [
            path
            for path in self.paths
            if len(path) <= budget.max_depth and max(path) < budget.branching
        ]
        return TreeShape(tuple(allowed[: budget.num_speculative_tokens]))


class StaticTree(GrowingTree):
    """Fills a shape: every node that has children in it is evaluated, every node is drafted.

    Args:
        shape: The nodes. Where a model names fewer children than the shape has, those and what
            is below them are missing.
        min_score: Nodes with a lower log-probability are left out, and what is below them.
    """

    def __init__(self, shape: TreeShape, min_score: float = -math.inf) -> None:
        super().__init__(shape.max_depth, min_score)
        self._paths = frozenset(shape.paths)
        self._children: dict[Ranks, int] = {}
        for path in shape.paths:
            self._children[path[:-1]] = max(self._children.get(path[:-1], 0), path[-1] + 1)

    def _num_children(self, parent: int) -> int:
        return self._children.get(self._ranks(parent), 0)

    def _next_frontier(self, level: Sequence[int]) -> list[int]:
        ranks = {node: self._ranks(node) for node in level}
        # A candidate may only stand between two ranks of the shape, and then is no node of it.
        return [n for n, path in ranks.items() if path in self._paths and path in self._children]

    def _drafted(self) -> list[int]:
        nodes = range(len(self.candidates))
        return [node for node in nodes if self._ranks(node) in self._paths]

    def _ranks(self, candidate: int) -> Ranks:
        if candidate == ROOT:
            return ()
        return tuple(self.candidates[node].rank for node in self.path(candidate))
