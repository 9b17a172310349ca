"""Which policy a session follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specrag.decoding.budget import DraftBudget, PassCosts, SpeculationConfig
from specrag.decoding.goodput import GoodputPolicy
from specrag.decoding.policy import FixedPolicy, RecentAcceptancePolicy, SpeculationPolicy
from specrag.models.target import TargetModel


class NoSpeculation(FixedPolicy):
    """Plain decoding, for a target that cannot take a draft back."""

    def budgets(self, rows: Sequence[int]) -> list[DraftBudget]:
        """Allows nothing.

        Args:
            rows: The running rows.
        """
        return [DraftBudget(0, 0)] * len(rows)


def choose_policy(
    target: TargetModel, config: SpeculationConfig, costs: PassCosts | None
) -> SpeculationPolicy:
    """Makes the policy that was asked for, as far as target and costs allow it.

    Args:
        target: Whose output is drafted.
        config: Names the policy.
        costs: What a pass costs; without it, ``goodput`` sends every draft whole.
    """
    if target.no_speculation:
        return NoSpeculation(config)
    if config.policy == "recent_acceptance":
        return RecentAcceptancePolicy(config)
    if config.policy == "fixed" or costs is None:
        return FixedPolicy(config)
    if config.strict:
        # All passes are of one width there, so all cost the same.
        whole = costs.of(1 + config.num_speculative_tokens)
        costs = replace(
            costs, num_nodes=(1,), relative=(1.0,), draft_level=costs.draft_level / whole
        )
    return GoodputPolicy(config, costs)
