"""The formulas against the field's figures, brute force, and a simulation of rounds."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.decoding.analysis import (
    Acceptance,
    best_gamma,
    break_even_alpha,
    break_even_epsilon,
    expected_tokens,
    round_cost,
    speedup,
)
from specrag.decoding.budget import PassCosts
from specrag.errors import ConfigError

STEP = PassCosts((1, 2, 4, 8, 16, 32), (1.0, 1.75, 1.94, 1.94, 1.98, 2.27))  # measured once

law = settings(deadline=None, max_examples=60)
probabilities = st.floats(0, 1)
lengths = st.integers(0, 24)
small = st.floats(0, 0.5)


@st.composite
def tables(draw: st.DrawFn) -> PassCosts:
    steps = draw(st.lists(st.floats(0, 1), min_size=3, max_size=3))
    return PassCosts((1, 2, 4, 8), (1.0, *(1 + sum(steps[: i + 1]) for i in range(3))))


@pytest.mark.parametrize(
    ("alpha", "figures"),
    [
        (0.5, ["1.94", "2.00", "2.00"]),
        (0.7, ["2.77", "3.20", "3.33"]),
        (0.85, ["3.71", "5.12", "6.25"]),
        (0.9, ["4.10", "6.13", "8.33"]),
    ],
)
def test_the_figures_of_the_formula(alpha: float, figures: list[str]) -> None:
    """A table in wide use gives 5.43 for 0.85 at 16, and others, that are not its formula's."""
    assert [f"{expected_tokens(alpha, gamma):.2f}" for gamma in (4, 8, 16)] == figures


@law
@given(alpha=st.floats(0, 0.999), gamma=lengths)
def test_the_sum_is_the_closed_form(alpha: float, gamma: int) -> None:
    closed = (1 - alpha ** (gamma + 1)) / (1 - alpha)
    assert expected_tokens(alpha, gamma) == pytest.approx(closed, rel=1e-9)


@law
@given(gamma=lengths)
def test_certain_acceptance_emits_the_draft_and_one_more(gamma: int) -> None:
    assert expected_tokens(1.0, gamma) == gamma + 1
    assert expected_tokens(1, gamma) == gamma + 1
    assert expected_tokens(0.0, gamma) == 1.0


@law
@given(alpha=probabilities, other=probabilities, gamma=lengths)
def test_expected_tokens_rise_with_acceptance_and_length(
    alpha: float, other: float, gamma: int
) -> None:
    low, high = sorted((alpha, other))
    assert expected_tokens(low, gamma) <= expected_tokens(high, gamma)
    assert expected_tokens(low, gamma) <= expected_tokens(low, gamma + 1)


@law
@given(alpha=st.floats(0, 0.95), gamma=lengths)
def test_expected_tokens_stay_under_their_limit(alpha: float, gamma: int) -> None:
    limit = 1 / (1 - alpha)
    assert expected_tokens(alpha, gamma) <= limit * (1 + 1e-12)
    assert expected_tokens(alpha, 2000) == pytest.approx(limit)


@law
@given(rates=st.lists(probabilities, min_size=1, max_size=6), gamma=lengths)
def test_acceptance_by_depth_multiplies_down_the_draft(rates: list[float], gamma: int) -> None:
    expected, path = 1.0, 1.0
    for depth in range(gamma):
        path *= rates[min(depth, len(rates) - 1)]
        expected += path
    assert expected_tokens(rates, gamma) == pytest.approx(expected)
    assert expected_tokens([rates[0]] * 3, gamma) == expected_tokens(rates[0], gamma)


def simulated(
    alpha: Acceptance, gamma: int, epsilon: float, costs: PassCosts, rounds: int = 20_000
) -> tuple[float, float]:
    """Plays rounds token by token; returns tokens per round and per time."""
    rates = [alpha] if isinstance(alpha, int | float) else alpha
    chance = random.Random(7)
    tokens, spent = 0, 0.0
    for _ in range(rounds):
        accepted = 0
        while accepted < gamma:
            if chance.random() >= rates[min(accepted, len(rates) - 1)]:
                break
            accepted += 1
        tokens += accepted + 1
        spent += sum([epsilon] * gamma) + costs.of(gamma + 1)
    return tokens / rounds, tokens / spent


@pytest.mark.parametrize("alpha", [0.3, 0.7, 0.9, [0.9, 0.6, 0.2], 1.0])
@pytest.mark.parametrize(("gamma", "epsilon"), [(1, 0.0), (4, 0.1), (12, 0.02)])
def test_a_simulation_agrees(alpha: Acceptance, gamma: int, epsilon: float) -> None:
    tokens, speed = simulated(alpha, gamma, epsilon, STEP)
    # Four standard errors: a round emits 1 to gamma + 1 tokens, so it deviates by at most half.
    error = 4 * (gamma / 2) / math.sqrt(20_000)
    assert tokens == pytest.approx(expected_tokens(alpha, gamma), abs=error)
    assert speed == pytest.approx(speedup(alpha, gamma, epsilon, STEP), abs=error)


def test_the_cost_of_drafting_counts_once_a_token() -> None:
    """Dividing by (1 + epsilon) would give 3.02 and call the longest draft the best."""
    assert speedup(0.7, 16, 0.1) == pytest.approx(expected_tokens(0.7, 16) / 2.6)
    assert f"{speedup(0.7, 16, 0.1):.2f}" == "1.28"
    assert f"{speedup(0.7, 4, 0.1):.2f}" == "1.98"
    assert best_gamma(0.7, 0.1) == 4
    assert round_cost(4, 0.1) == pytest.approx(1.4)


@law
@given(alpha=probabilities, epsilon=small, costs=tables(), size=st.integers(1, 4))
def test_no_draft_is_neither_gain_nor_loss(
    alpha: float, epsilon: float, costs: PassCosts, size: int
) -> None:
    assert speedup(alpha, 0, epsilon, costs, batch_size=size) == 1.0


@law
@given(alpha=probabilities, other=probabilities, gamma=lengths, epsilon=small, costs=tables())
def test_speed_rises_with_acceptance_and_falls_with_cost(
    alpha: float, other: float, gamma: int, epsilon: float, costs: PassCosts
) -> None:
    low, high = sorted((alpha, other))
    assert speedup(low, gamma, epsilon, costs) <= speedup(high, gamma, epsilon, costs)
    assert speedup(low, gamma, epsilon + 0.1, costs) <= speedup(low, gamma, epsilon, costs)
    assert speedup(low, gamma, epsilon, costs) <= speedup(low, gamma, epsilon) * (1 + 1e-12)


@law
@given(
    alpha=st.one_of(probabilities, st.lists(probabilities, min_size=1, max_size=4)),
    epsilon=small,
    costs=st.one_of(st.none(), tables()),
    limit=st.integers(1, 20),
    size=st.integers(1, 4),
)
def test_the_best_length_is_found_by_brute_force(
    alpha: Acceptance, epsilon: float, costs: PassCosts | None, limit: int, size: int
) -> None:
    def speed(gamma: int) -> float:
        return speedup(alpha, gamma, epsilon, costs, batch_size=size)

    best = best_gamma(alpha, epsilon, costs, limit, batch_size=size)
    assert 0 <= best <= limit
    assert all(speed(best) >= speed(gamma) for gamma in range(limit + 1))
    assert all(speed(best) > speed(gamma) for gamma in range(best))


@law
@given(alpha=st.floats(0, 0.99), epsilon=st.floats(0.05, 1))
def test_a_cost_of_drafting_bounds_the_draft(alpha: float, epsilon: float) -> None:
    # A round costs at least gamma * epsilon, and emits at most 1 / (1 - alpha) tokens.
    bound = math.ceil(1 / ((1 - alpha) * epsilon)) + 1
    assert best_gamma(alpha, epsilon, None, limit=min(bound + 10, 400)) <= bound


def test_free_drafts_and_passes_make_the_longest_draft_the_best() -> None:
    assert best_gamma(0.5, 0.0, None, 12) == 12
    assert best_gamma(0.0, 0.0, None, 12) == 0


@law
@given(epsilon=st.floats(0, 0.99))
def test_with_flat_costs_a_draft_pays_above_its_own_cost(epsilon: float) -> None:
    found = break_even_alpha(epsilon)
    assert found == pytest.approx(epsilon, abs=1e-9)


@law
@given(epsilon=small, costs=tables(), size=st.integers(1, 3))
def test_drafts_pay_above_the_break_even_and_not_below(
    epsilon: float, costs: PassCosts, size: int
) -> None:
    found = break_even_alpha(epsilon, costs, 8, batch_size=size)
    if found is None:
        assert best_gamma(1.0, epsilon, costs, 8, batch_size=size) == 0
        return
    assert best_gamma(max(0.0, found - 1e-6), epsilon, costs, 8, batch_size=size) == 0 or found == 0
    assert best_gamma(min(1.0, found + 1e-6), epsilon, costs, 8, batch_size=size) > 0


def test_where_nothing_pays() -> None:
    double = PassCosts((1, 2), (1.0, 2.0))
    assert break_even_alpha(0.0, double) is None
    assert break_even_alpha(1.0) is None
    assert break_even_epsilon(1.0, double) is None
    assert break_even_epsilon(0.4, STEP) is None


def test_a_step_of_the_costs_asks_for_high_acceptance_or_long_drafts() -> None:
    """A machine on which two tokens cost almost two passes, and sixteen hardly more."""
    one, eight = (break_even_alpha(0.0, STEP, limit) for limit in (1, 8))
    assert one == pytest.approx(0.75)
    assert eight is not None
    assert eight < 0.5


@law
@given(alpha=st.floats(0.05, 1), costs=tables())
def test_drafts_pay_below_the_break_even_cost_and_not_above(alpha: float, costs: PassCosts) -> None:
    found = break_even_epsilon(alpha, costs, 8)
    if found is None:
        assert best_gamma(alpha, 1e-9, costs, 8) == 0
        return
    assert best_gamma(alpha, found + 1e-6, costs, 8) == 0
    assert found < 1e-6 or best_gamma(alpha, found - 1e-6, costs, 8) > 0


def test_all_rows_of_a_batch_share_a_pass() -> None:
    costs = PassCosts((1, 2, 4, 8), (1.0, 1.1, 1.4, 2.8))
    assert round_cost(1, 0.0, costs, batch_size=4) == pytest.approx(2.8 / 1.4)
    assert speedup(0.8, 1, 0.1, costs, batch_size=4) == pytest.approx(1.8 / 2.1)
    assert best_gamma(0.8, 0.0, costs) > 0
    assert best_gamma(0.8, 0.0, costs, batch_size=4) == 0


WRONG: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]] = [
    (expected_tokens, (1.5, 4), {}, "alpha must be between 0 and 1, got 1.5"),
    (expected_tokens, (-0.1, 4), {}, "alpha must be between 0 and 1"),
    (expected_tokens, (math.nan, 4), {}, "alpha must be between 0 and 1, got nan"),
    (expected_tokens, ([0.5, 2], 4), {}, "alpha must be between 0 and 1, got 2"),
    (expected_tokens, ([], 4), {}, "at least one figure"),
    (expected_tokens, (0.5, -1), {}, "gamma must be at least 0, got -1"),
    (round_cost, (4, -0.5), {}, "epsilon must be a finite number of at least 0, got -0.5"),
    (round_cost, (4, math.inf), {}, "epsilon must be a finite number"),
    (round_cost, (4, math.nan), {}, "epsilon must be a finite number"),
    (speedup, (0.5, 4), {"batch_size": 0}, "batch_size must be at least 1, got 0"),
    (best_gamma, (0.5, 0.0, None, 0), {}, "limit must be at least 1, got 0"),
    (break_even_alpha, (0.0, None, 0), {}, "limit must be at least 1"),
    (break_even_epsilon, (0.5, None, 0), {}, "limit must be at least 1"),
]


@pytest.mark.parametrize(("function", "args", "options", "message"), WRONG)
def test_values_out_of_range_are_refused(
    function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        function(*args, **options)
