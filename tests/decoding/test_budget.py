"""The budget of a round."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specrag.decoding.budget import DraftBudget, SpeculationConfig
from specrag.errors import ConfigError

counts = st.integers(0, 12)


@given(st.builds(DraftBudget, counts, counts, st.integers(1, 4)), st.integers(0, 20))
def test_a_draft_and_its_bonus_token_fit_in_the_room(budget: DraftBudget, room: int) -> None:
    within = budget.within(room)

    assert within.max_depth == min(budget.max_depth, max(0, room - 1))
    assert within.num_speculative_tokens in (0, budget.num_speculative_tokens)
    assert (within.num_speculative_tokens == 0) == (
        within.max_depth == 0 or budget.num_speculative_tokens == 0
    )
    assert within.branching == budget.branching


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (SpeculationConfig(5, branching=2), DraftBudget(5, 5, 2)),
        (SpeculationConfig(9, 3, 4), DraftBudget(9, 3, 4)),
        (SpeculationConfig(0, branching=1), DraftBudget(0, 0, 1)),
    ],
)
def test_without_a_depth_a_chain_of_all_nodes_is_allowed(
    config: SpeculationConfig, expected: DraftBudget
) -> None:
    assert config.budget() == expected


@pytest.mark.parametrize(
    ("name", "least"), [("num_speculative_tokens", 0), ("branching", 1), ("max_depth", 0)]
)
def test_a_value_that_is_too_small_is_named(name: str, least: int) -> None:
    options: dict[str, Any] = {name: least - 1}
    allowed: dict[str, Any] = {name: least}

    with pytest.raises(ConfigError, match=f"{name} must be at least {least}, got {least - 1}"):
        SpeculationConfig(**options)
    assert getattr(dataclasses.replace(SpeculationConfig(), **allowed), name) == least


@pytest.mark.parametrize("name", ["policy", "verification", "optimistic"])
def test_an_unknown_choice_is_refused_and_the_nearest_one_named(name: str) -> None:
    default = getattr(SpeculationConfig(), name)
    options: dict[str, Any] = {name: default + "s"}

    with pytest.raises(ConfigError, match=f"unknown {name} '{default}s'.*{default}"):
        SpeculationConfig(**options)


@pytest.mark.parametrize("value", [-0.1, 1.1])
def test_a_least_acceptance_is_a_share(value: float) -> None:
    with pytest.raises(ConfigError, match=f"min_acceptance must be from 0 .* got {value}"):
        SpeculationConfig(min_acceptance=value)


def test_strict_decoding_drafts_chains() -> None:
    assert SpeculationConfig(5, 3, 4, strict=True).budget() == DraftBudget(5, 3, 1)
