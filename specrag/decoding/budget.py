"""How much to speculate in the next round."""

from __future__ import annotations

from dataclasses import dataclass

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
        num_speculative_tokens: Nodes of a draft tree, the root not counted. The default makes a
            pass of 8 rows, which costs a CPU hardly more than a pass of one.
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


def _check(name: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError(f"{name} must be at least {least}, got {value}")
