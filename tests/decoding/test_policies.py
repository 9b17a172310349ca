"""Which policy a session follows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specrag.decoding.budget import DraftBudget, PassCosts, SpeculationConfig
from specrag.decoding.goodput import GoodputPolicy
from specrag.decoding.policies import NoSpeculation, choose_policy
from specrag.decoding.policy import FixedPolicy, RecentAcceptancePolicy, SpeculationPolicy
from specrag.models.tiny import tiny_target

COSTS = PassCosts((1, 8), (1.0, 2.0), draft_level=0.3)


@pytest.mark.parametrize(
    ("policy", "costs", "expected"),
    [
        ("goodput", COSTS, GoodputPolicy),
        ("goodput", None, FixedPolicy),
        ("fixed", COSTS, FixedPolicy),
        ("recent_acceptance", COSTS, RecentAcceptancePolicy),
        ("recent_acceptance", None, RecentAcceptancePolicy),
    ],
)
def test_the_policy_is_the_one_asked_for_as_far_as_costs_are_known(
    policy: str, costs: PassCosts | None, expected: type[SpeculationPolicy]
) -> None:
    found = choose_policy(tiny_target(), SpeculationConfig(policy=policy), costs)

    assert type(found) is expected


@pytest.mark.parametrize("policy", ["goodput", "recent_acceptance", "fixed"])
def test_a_target_that_only_decodes_plainly_gets_no_drafts(policy: str) -> None:
    target = tiny_target()
    target.no_speculation = "it cannot look back"
    found = choose_policy(target, SpeculationConfig(policy=policy), COSTS)

    assert type(found) is NoSpeculation
    found.join()
    assert found.budgets([0, 1]) == [DraftBudget(0, 0)] * 2


def test_in_strict_decoding_a_longer_draft_costs_only_the_drafter() -> None:
    config = SpeculationConfig(7, strict=True)
    depths = []
    for level in (0.01, 1.2, 2.0):
        policy = choose_policy(tiny_target(), config, replace(COSTS, draft_level=level))
        policy.join()
        depths.append(policy.budgets([0])[0].max_depth)

    # All passes are of eight nodes and cost 2.0 of a plain one, so a level of 1.2 is 0.6 of a pass
    # and brings 0.7 tokens as far as is known; one of 2.0 costs more than it brings.
    assert depths[0] == 7
    assert depths[1] > 0
    assert depths[2] == 0
