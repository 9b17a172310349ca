"""The report of `specrag advise`: the field's analysis with one's own figures, and what to use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from specrag.decoding.analysis import (
    Acceptance,
    best_gamma,
    break_even_alpha,
    expected_tokens,
    round_cost,
    speedup,
)
from specrag.decoding.budget import PassCosts
from specrag.errors import ConfigError
from specrag.evaluation.cost_table import CostTable
from specrag.evaluation.measured_acceptance import MeasuredAcceptance
from specrag.evaluation.uses import USES, Situation, advice

USUAL_ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9)
GAMMAS = (1, 2, 4, 8, 16)
BATCH_SIZES = (1, 2, 4, 8, 16, 32)
DEFAULT_ALPHA = 0.7
# The article's table of expected tokens, for drafts of 4, 8 and 16 tokens.
PUBLISHED_GAMMAS = (4, 8, 16)
PUBLISHED = {
    0.5: (1.94, 1.99, 2.00),
    0.7: (2.76, 3.24, 3.36),
    0.85: (3.44, 4.62, 5.43),
    0.9: (3.78, 5.65, 7.48),
}


@dataclass(frozen=True, slots=True)
class Case:
    """An acceptance to calculate with: one row of the tables.

    Attributes:
        label: What it is called there.
        acceptance: One figure, or one for each depth.
        epsilon: Time to draft one token, as a share of a plain pass.
        measured: Where the acceptance comes from; None when it was assumed.
    """

    label: str
    acceptance: Acceptance
    epsilon: float
    measured: MeasuredAcceptance | None = None


def advise_report(
    table: CostTable,
    *,
    alpha: float | None = None,
    epsilon: float | None = None,
    batch_size: int = 1,
    max_gamma: int = 16,
    uses: Sequence[str] = tuple(USES),
    measured: Sequence[MeasuredAcceptance] = (),
) -> dict[str, Any]:
    """Returns all figures and the advice, as plain data.

    Args:
        table: What a pass costs.
        alpha: Acceptance to calculate with besides the usual ones.
        epsilon: Time to draft one token, as a share of a plain pass; None takes what was
            measured, and 0 where nothing was.
        batch_size: Rows that share a pass.
        max_gamma: Longest draft to consider.
        uses: Names of ``USES`` to advise on.
        measured: Acceptance from runs; the first of them leads where no alpha is given.

    Raises:
        ConfigError: A value is out of range, or a use is unknown.
    """
    situation = Situation(epsilon or 0.0, table.costs, batch_size, max_gamma)
    cases = _cases(alpha, epsilon, measured, table)
    gammas = _gammas(max_gamma)
    leading = alpha if alpha is not None else next((m.alpha for m in measured), None)
    shown = DEFAULT_ALPHA if leading is None else leading
    paying = break_even_alpha(
        situation.epsilon, table.costs, max_gamma, batch_size=batch_size
    )  # also checks all values
    return {
        "assumptions": {
            "alpha": shown,
            "alpha_source": _source(alpha, leading),
            "epsilon": situation.epsilon,
            "batch_size": batch_size,
            "max_gamma": max_gamma,
        },
        "costs": _costs(table, batch_size * (1 + max_gamma)),
        "gammas": gammas,
        "rows": [_row(case, situation, gammas) for case in cases],
        "break_even_alpha": _rounded(paying),
        "pays": situation.best(shown)[0] > 0,
        "batches": [_batch(situation, size, shown) for size in _batch_sizes(batch_size)],
        "uses": [advice(use, situation, leading) for use in uses],
        "published": published(),
        "notes": _notes(situation),
    }


def published() -> list[dict[str, Any]]:
    """Returns the published table of expected tokens beside what its formula gives."""
    return [
        {
            "alpha": alpha,
            "gammas": list(PUBLISHED_GAMMAS),
            "published": list(figures),
            "formula": [round(expected_tokens(alpha, gamma), 2) for gamma in PUBLISHED_GAMMAS],
        }
        for alpha, figures in PUBLISHED.items()
    ]


def _cases(
    alpha: float | None,
    epsilon: float | None,
    measured: Sequence[MeasuredAcceptance],
    table: CostTable,
) -> list[Case]:
    spent = epsilon or 0.0
    usual = [value for value in USUAL_ALPHAS if value != alpha]
    cases = [Case(f"{value:.2f}", value, spent) for value in usual]
    if alpha is not None:
        cases = sorted([*cases, Case(f"{alpha:.2f} (yours)", alpha, spent)], key=_value)
    for found in measured:
        own = found.epsilon(table.costs) if epsilon is None else epsilon
        cases.append(Case(found.label, found.by_depth, own or 0.0, found))
    return cases


def _value(case: Case) -> float:
    return case.acceptance if isinstance(case.acceptance, int | float) else math.inf


def _row(case: Case, situation: Situation, gammas: Sequence[int]) -> dict[str, Any]:
    costs, size = situation.costs, situation.batch_size
    best = best_gamma(case.acceptance, case.epsilon, costs, situation.max_gamma, batch_size=size)
    curve = [
        _rounded(speedup(case.acceptance, gamma, case.epsilon, costs, batch_size=size))
        for gamma in range(situation.max_gamma + 1)
    ]
    found = case.measured
    row: dict[str, Any] = {
        "label": case.label,
        "alpha": _rounded(found.alpha) if found else case.acceptance,
        "epsilon": _rounded(case.epsilon),
        "expected_tokens": [_rounded(expected_tokens(case.acceptance, g)) for g in gammas],
        "speedup": [curve[gamma] for gamma in gammas],
        "curve": curve,
        "best_gamma": best,
        "best_speedup": curve[best],
        "pays": best > 0,
        "measured": None,
    }
    if found:
        row["measured"] = _measured(found, case.epsilon, best, situation)
    return row


def _measured(
    found: MeasuredAcceptance, epsilon: float, gamma: int, situation: Situation
) -> dict[str, Any]:
    spent = round_cost(gamma, epsilon, situation.costs, batch_size=situation.batch_size)
    share = found.coverage
    # Passes without a draft are plain ones; a speedup of drafted rounds is not one of the text.
    tokens = share * expected_tokens(found.by_depth, gamma) + (1 - share)
    return {
        "alpha_by_depth": [_rounded(rate) for rate in found.by_depth],
        "basis": found.basis,
        "num_rounds": found.num_rounds,
        "coverage": _rounded(share),
        "speedup_over_all_passes": _rounded(tokens / (share * spent + (1 - share))),
        "mean_acceptance_length": found.mean_acceptance_length,
        "speedup": found.speedup,
    }


def _batch(situation: Situation, size: int, alpha: float) -> dict[str, Any]:
    rows = replace(situation, batch_size=size)
    gamma, fastest = rows.best(alpha)
    paying = break_even_alpha(rows.epsilon, rows.costs, rows.max_gamma, batch_size=size)
    return {
        "batch_size": size,
        "best_gamma": gamma,
        "best_speedup": _rounded(fastest),
        "break_even_alpha": _rounded(paying),
    }


def _batch_sizes(batch_size: int) -> list[int]:
    return sorted({*BATCH_SIZES, batch_size})


def _gammas(max_gamma: int) -> list[int]:
    if max_gamma < 1:
        raise ConfigError(f"max_gamma must be at least 1, got {max_gamma}")
    return sorted({*(gamma for gamma in GAMMAS if gamma <= max_gamma), max_gamma})


def _costs(table: CostTable, largest: int) -> dict[str, Any]:
    costs = table.costs or PassCosts((1,), (1.0,))
    return {
        "source": table.source,
        "num_nodes": list(costs.num_nodes),
        "relative": [_rounded(value) for value in costs.relative],
        "extrapolated_beyond": (
            costs.num_nodes[-1] if table.costs and largest > costs.num_nodes[-1] else None
        ),
    }


def _source(alpha: float | None, leading: float | None) -> str:
    if alpha is not None:
        return "given"
    return "assumed" if leading is None else "measured"


def _notes(situation: Situation) -> list[str]:
    differing = ", ".join(
        f"{row['alpha']:.2f}: {_joined(row['published'])} for {_joined(row['formula'])}"
        for row in published()
        if row["alpha"] > 0.5
    )
    tokens = expected_tokens(0.7, 16)
    notes = [
        "The usual published table is not what its own formula gives, for gamma "
        f"{'/'.join(map(str, PUBLISHED_GAMMAS))} at alpha {differing}.",
        "Published analyses divide by (1 + epsilon) once; that fits the cost of a whole draft. At "
        f"epsilon 0.1 a token, alpha 0.7 and gamma 16 they give {tokens / 1.1:.2f}x, but drafting "
        f"16 tokens costs 1.6 passes: {tokens / 2.6:.2f}x.",
        "Acceptance falls with depth and changes with the text: use --from-json for your own. The "
        "policy goodput does this calculation in every round; fixed and recent_acceptance ask no "
        "costs. For work of several kinds the drafter selector chooses by the kind of text.",
    ]
    if situation.costs is None:
        notes.append(
            "With flat costs and free drafts the longest draft is always best; --costs measured "
            "tells where that ends."
        )
    return notes


def _joined(figures: Sequence[float]) -> str:
    return "/".join(f"{figure:.2f}" for figure in figures)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
