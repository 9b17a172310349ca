"""How fast speculation can be: formulas over acceptance, draft length and costs, nothing measured.

After Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative Decoding"
(2023), with the cost of a pass by its size in place of their assumption that it is constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from specrag.decoding.budget import PassCosts
from specrag.errors import ConfigError

Acceptance = float | Sequence[float]
"""Probability that a drafted token is accepted when all before it were: one figure for all depths,
or one for each, first depth first; beyond the list the last one holds."""

_FLAT = PassCosts((1,), (1.0,))
_HALVINGS = 60


def expected_tokens(alpha: Acceptance, gamma: int) -> float:
    """Returns how many tokens a round emits on average, the target's own token included.

    For one alpha it is (1 - alpha^(gamma + 1)) / (1 - alpha), here summed term by term, which
    is exact near alpha = 1 too. It rises with gamma towards 1 / (1 - alpha).

    Args:
        alpha: Acceptance, between 0 and 1.
        gamma: Tokens of the draft, a chain; 0 is plain decoding.

    Raises:
        ConfigError: A value is out of range.
    """
    _check_count("gamma", gamma, 0)
    rates = _rates(alpha)
    rates = [*rates[:gamma], *[rates[-1]] * (gamma - len(rates))]
    return sum(accumulate(rates, mul, initial=1.0))


def round_cost(
    gamma: int, epsilon: float = 0.0, costs: PassCosts | None = None, *, batch_size: int = 1
) -> float:
    """Returns the time of a round, a pass of plain decoding over the same batch being 1.0.

    It is also the longest wait for the next token: a round may emit a single one.

    Args:
        gamma: Tokens of the draft of each row.
        epsilon: Time to draft one token for all rows, as a share of a plain pass. It is paid
            gamma times: dividing by (1 + epsilon) fits only a cost of the whole draft.
        costs: What a pass costs by its size; None makes all sizes cost the same.
        batch_size: Rows that share the pass.

    Raises:
        ConfigError: A value is out of range.
    """
    _check_count("gamma", gamma, 0)
    _check_count("batch_size", batch_size, 1)
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise ConfigError(
            f"epsilon must be a finite number of at least 0, got {epsilon}",
            hint="it is the time to draft one token as a share of a pass of the target",
        )
    table = costs or _FLAT
    return table.of(batch_size * (1 + gamma)) / table.of(batch_size) + gamma * epsilon


def speedup(
    alpha: Acceptance,
    gamma: int,
    epsilon: float = 0.0,
    costs: PassCosts | None = None,
    *,
    batch_size: int = 1,
) -> float:
    """Returns how many times faster than plain decoding drafts of one length are.

    Args:
        alpha: Acceptance, between 0 and 1.
        gamma: Tokens of the draft; 0 gives 1.0.
        epsilon: Time to draft one token, as a share of a plain pass.
        costs: What a pass costs by its size; None makes all sizes cost the same.
        batch_size: Rows that share the pass, each with a draft of its own.

    Raises:
        ConfigError: A value is out of range.
    """
    spent = round_cost(gamma, epsilon, costs, batch_size=batch_size)
    return expected_tokens(alpha, gamma) / spent


def best_gamma(
    alpha: Acceptance,
    epsilon: float = 0.0,
    costs: PassCosts | None = None,
    limit: int = 16,
    *,
    batch_size: int = 1,
) -> int:
    """Returns the fastest draft length, the shortest of equals; 0 where no draft pays.

    Args:
        alpha: Acceptance, between 0 and 1.
        epsilon: Time to draft one token, as a share of a plain pass.
        costs: What a pass costs by its size; None makes all sizes cost the same.
        limit: Longest draft to consider. It is the answer when drafts and larger passes are free.
        batch_size: Rows that share the pass.

    Raises:
        ConfigError: A value is out of range.
    """
    _check_count("limit", limit, 1)
    return max(
        range(limit + 1),
        key=lambda gamma: speedup(alpha, gamma, epsilon, costs, batch_size=batch_size),
    )


def break_even_alpha(
    epsilon: float = 0.0,
    costs: PassCosts | None = None,
    limit: int = 16,
    *,
    batch_size: int = 1,
) -> float | None:
    """Returns the acceptance above which some draft is faster than none.

    With free passes it is epsilon itself: a draft of one token pays first.

    Args:
        epsilon: Time to draft one token, as a share of a plain pass.
        costs: What a pass costs by its size; None makes all sizes cost the same.
        limit: Longest draft to consider.
        batch_size: Rows that share the pass.

    Returns:
        A number from 0 to below 1, or None where not even certain acceptance pays.

    Raises:
        ConfigError: A value is out of range.
    """

    def pays(alpha: float) -> bool:
        return best_gamma(alpha, epsilon, costs, limit, batch_size=batch_size) > 0

    if not pays(1.0):
        return None
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if pays(middle) else (middle, high)
    return low


def break_even_epsilon(
    alpha: Acceptance, costs: PassCosts | None = None, limit: int = 16, *, batch_size: int = 1
) -> float | None:
    """Returns the drafting cost below which some draft is faster than none.

    Args:
        alpha: Acceptance, between 0 and 1.
        costs: What a pass costs by its size; None makes all sizes cost the same.
        limit: Longest draft to consider.
        batch_size: Rows that share the pass.

    Returns:
        Time to draft one token as a share of a plain pass, or None where not even a free draft
        pays.

    Raises:
        ConfigError: A value is out of range.
    """
    _check_count("limit", limit, 1)
    gains = (
        (expected_tokens(alpha, gamma) - round_cost(gamma, 0.0, costs, batch_size=batch_size))
        / gamma
        for gamma in range(1, limit + 1)
    )
    most = max(gains)
    return most if most > 0 else None


def _rates(alpha: Acceptance) -> list[float]:
    rates = [alpha] if isinstance(alpha, int | float) else list(alpha)
    if not rates:
        raise ConfigError(f"acceptance by depth needs at least one figure, got {rates}")
    for rate in rates:
        _check_probability("alpha", rate)
    return rates


def _check_probability(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ConfigError(f"{name} must be between 0 and 1, got {value}")


def _check_count(name: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError(f"{name} must be at least {least}, got {value}")
