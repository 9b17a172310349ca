"""How much to speculate in the next round: what is allowed, and what is worth its cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from specrag.decoding.tree import DraftTree
from specrag.errors import ConfigError


@dataclass(frozen=True, slots=True)
class DraftBudget:
    """The largest tree that a drafter may propose now.

    Attributes:
        num_speculative_tokens: Most nodes, the root not counted.
        max_depth: Deepest level.
        branching: Most children of a node.
    """

    num_speculative_tokens: int
    max_depth: int
    branching: int = 1

    def within(self, room: int) -> DraftBudget:
        """Returns this budget, no deeper than the room left in a row.

        Args:
            room: Tokens that the row can still take; the tree may use all but the bonus token's.
        """
        depth = max(0, min(self.max_depth, room - 1))
        nodes = self.num_speculative_tokens if depth else 0
        return DraftBudget(nodes, depth, self.branching)


@dataclass(frozen=True, slots=True)
class SpeculationConfig:
    """How a generator speculates; a fixed budget a round.

    Attributes:
        num_speculative_tokens: Most nodes of a draft tree, the root not counted. The default
            makes a pass of 8 rows, up to which a pass costs a CPU little more than one of two.
        max_depth: Deepest level of a draft tree; None allows a chain of all nodes.
        branching: Most children of a node; at the same number of nodes, a few alternatives for
            the first tokens bring more than a longer chain.
    """

    num_speculative_tokens: int = 7
    max_depth: int | None = None
    branching: int = 4

    def __post_init__(self) -> None:
        _check("num_speculative_tokens", self.num_speculative_tokens, 0)
        _check("branching", self.branching, 1)
        if self.max_depth is not None:
            _check("max_depth", self.max_depth, 0)

    def budget(self) -> DraftBudget:
        """Returns the budget of a round."""
        depth = self.num_speculative_tokens if self.max_depth is None else self.max_depth
        return DraftBudget(self.num_speculative_tokens, depth, self.branching)


@dataclass(frozen=True, slots=True)
class PassCosts:
    """What a pass of the target costs, by the number of nodes in it.

    Attributes:
        num_nodes: Measured sizes, rising, starting with 1; all rows of a batch together.
        relative: Time of a pass of that size, a pass of one node being 1.0.
    """

    num_nodes: tuple[int, ...]
    relative: tuple[float, ...]

    def of(self, num_nodes: int) -> float:
        """Returns the cost of a pass, between and beyond the measured sizes on a straight line.

        Args:
            num_nodes: Nodes of the pass, at least 1.
        """
        sizes, costs = self.num_nodes, self.relative
        right = next((i for i, size in enumerate(sizes) if size >= num_nodes), len(sizes) - 1)
        left = max(0, right - 1)
        if sizes[right] == sizes[left]:
            return costs[right]
        slope = (costs[right] - costs[left]) / (sizes[right] - sizes[left])
        return costs[left] + slope * (num_nodes - sizes[left])


def worthwhile(trees: Sequence[DraftTree], costs: PassCosts) -> int:
    """Returns how many nodes of each tree maximise the expected tokens per time; 0 for none.

    A node is worth the probability that its path is accepted. All rows share a pass and are
    padded to the widest, so they share the number too.

    Args:
        trees: Drafts of all rows, with confidences, the likeliest nodes first.
        costs: What a pass costs.
    """
    gains = [list(accumulate(tree.confidences, initial=1.0)) for tree in trees]

    def speed(size: int) -> float:
        expected = sum(gain[min(size, len(gain) - 1)] for gain in gains)
        return expected / costs.of(len(trees) * (1 + size))

    return max(range(1 + max(len(tree) for tree in trees)), key=speed)


def _check(name: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError(f"{name} must be at least {least}, got {value}")
