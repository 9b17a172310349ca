"""How much may be speculated, and what a pass costs."""

from __future__ import annotations

from dataclasses import dataclass

from specrag.errors import ConfigError, suggest

POLICIES = ("goodput", "recent_acceptance", "fixed")
VERIFICATIONS = ("match", "rejection")
OPTIMISM = ("auto", "on", "off")


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
    """How a generator speculates. Nothing here changes the law of the output.

    Attributes:
        num_speculative_tokens: Most nodes of a draft tree, the root not counted.
        max_depth: Deepest level of a draft tree; None allows a chain of all nodes.
        branching: Most children of a node; at the same number of nodes, a few alternatives for
            the first tokens bring more than a longer chain.
        policy: ``goodput`` drafts what brings the most tokens per time, by measured costs;
            ``recent_acceptance`` follows the last ten drafts; ``fixed`` always drafts the most.
            Without measured costs, goodput is ``fixed``.
        min_acceptance: Below this acceptance speculation pauses, and is probed again later; 0
            never pauses it.
        verification: ``match`` gives the tokens of plain decoding for the same seed, for any
            draft; ``rejection`` accepts sampled drafts with the probability min(1, p/q), which
            accepts more of them and keeps the distribution, not the tokens.
        strict: Run all passes at one width, of whole groups of eight nodes, so that the output is
            plain decoding's bit for bit, in any precision; drafts are chains then, and a pass
            costs what the widest costs.
        optimistic: Draft the next round while the target verifies; ``auto`` does so where
            the drafter does not compete with the target for the processor.
    """

    num_speculative_tokens: int = 15
    max_depth: int | None = None
    branching: int = 4
    policy: str = "goodput"
    min_acceptance: float = 0.4
    verification: str = "match"
    strict: bool = False
    optimistic: str = "auto"

    def __post_init__(self) -> None:
        _check("num_speculative_tokens", self.num_speculative_tokens, 0)
        _check("branching", self.branching, 1)
        if self.max_depth is not None:
            _check("max_depth", self.max_depth, 0)
        if not 0 <= self.min_acceptance <= 1:
            raise ConfigError(
                f"min_acceptance must be from 0 (never pause) to 1, got {self.min_acceptance}"
            )
        _check_name("policy", self.policy, POLICIES)
        _check_name("verification", self.verification, VERIFICATIONS)
        _check_name("optimistic", self.optimistic, OPTIMISM)

    def budget(self) -> DraftBudget:
        """Returns the budget of a round."""
        depth = self.num_speculative_tokens if self.max_depth is None else self.max_depth
        # At one width, only a chain has each token where plain decoding has it.
        branching = 1 if self.strict else self.branching
        return DraftBudget(self.num_speculative_tokens, depth, branching)


@dataclass(frozen=True, slots=True)
class PassCosts:
    """What a pass of the target costs, by the number of nodes in it.

    Attributes:
        num_nodes: Measured sizes, rising, starting with 1; all rows of a batch together.
        relative: Time of a pass of that size, a pass of one node being 1.0.
        draft_level: Time that the drafter takes for each level of a draft, on the same scale.
    """

    num_nodes: tuple[int, ...]
    relative: tuple[float, ...]
    draft_level: float = 0.0

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


def _check(name: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError(f"{name} must be at least {least}, got {value}")


def _check_name(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"unknown {name} {value!r}; {suggest(value, allowed)}")
