"""Which settings are worth measuring for a drafter, by what passes cost and drafts achieve."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Any

from specrag.decoding.analysis import Acceptance, expected_tokens, round_cost, speedup
from specrag.decoding.budget import PassCosts
from specrag.evaluation.tuning.candidate import Candidate

GAMMAS = (1, 2, 3, 4, 6, 8, 12, 16)
BRANCHINGS = (1, 2, 4)

_FEW = 10  # drafts that must have come to a depth for its acceptance to be a figure
_TREES = (8, 16)  # sizes that fixed trees are tried at
_NO_EVIDENCE = 0.5


def probes(drafter: str, most: int, costs: PassCosts, level: float) -> list[Candidate]:
    """Returns what tells a drafter's speed and its acceptance at every depth.

    Args:
        drafter: Its name.
        most: Most drafted tokens of the policy that limits itself.
        costs: What a pass costs.
        level: What the drafter takes for each level of a draft.

    Returns:
        The usual tree under the policy ``goodput``, and the longest chain that could pay.
    """
    longest = max(gammas_that_can_pay(1.0, costs, level))
    return [
        Candidate(drafter, most, max(BRANCHINGS), "goodput"),
        Candidate(drafter, longest, 1, "fixed"),
    ]


def candidates(
    drafter: str, most: int, acceptance: Acceptance, costs: PassCosts, level: float
) -> list[Candidate]:
    """Returns what to try for a drafter, what is likeliest to win first.

    Args:
        drafter: Its name.
        most: Most drafted tokens of the policies that limit themselves.
        acceptance: As measured, by depth.
        costs: What a pass costs.
        level: What the drafter takes for each level of a draft.
    """
    gammas = gammas_that_can_pay(_hopeful(acceptance), costs, level)
    found = [
        Candidate(drafter, most, max(BRANCHINGS), "goodput"),
        *(Candidate(drafter, gamma, 1, "fixed") for gamma in gammas),
        *(Candidate(drafter, most, width, "goodput") for width in BRANCHINGS),
        *(
            Candidate(drafter, size, width, "fixed")
            for size in _TREES
            if size <= max(gammas)
            for width in BRANCHINGS[1:]
        ),
        *(Candidate(drafter, most, width, "recent_acceptance") for width in (4, 1)),
    ]
    return list(dict.fromkeys(found))


def gammas_that_can_pay(acceptance: Acceptance, costs: PassCosts, level: float) -> list[int]:
    """Returns the lengths of chains that beat plain decoding at an acceptance; at least one token.

    Args:
        acceptance: The most to hope for.
        costs: What a pass costs.
        level: What the drafter takes for each level of a draft.
    """
    paying = [gamma for gamma in GAMMAS if speedup(acceptance, gamma, level, costs) > 1]
    return paying or [GAMMAS[0]]


def rates(row: Mapping[str, Any]) -> Acceptance:
    """Returns the acceptance at each depth of the drafts that were right until there.

    Args:
        row: Figures of a drafter that drafted chains.
    """
    shares: Sequence[float] = row["acceptance_by_depth"]
    drafts = (row["speculation"] or {}).get("num_drafts", 0)
    found = list(_conditional(shares, drafts))
    return found or _NO_EVIDENCE


def largest_paying_batch(
    acceptance: Acceptance, costs: PassCosts, level: float, sizes: Sequence[int]
) -> int:
    """Returns the most rows of a batch for which some chain beats plain decoding; 0 for none.

    Args:
        acceptance: By depth.
        costs: What a pass costs; larger ones than were measured lie on a straight line.
        level: What the drafter takes for each level of a draft.
        sizes: To look at, rising.
    """

    def pays(size: int) -> bool:
        return any(
            expected_tokens(acceptance, gamma) > round_cost(gamma, level, costs, batch_size=size)
            for gamma in GAMMAS
        )

    return _largest(pays, sizes)


def largest_batch_as_sent(
    row: Mapping[str, Any], costs: PassCosts, level: float, sizes: Sequence[int]
) -> int:
    """Returns the most rows of a batch for which the drafts that were sent pay; 0 for none.

    Args:
        row: Figures of a candidate, with its counters.
        costs: What a pass costs.
        level: What the drafter takes for each level of a draft.
        sizes: To look at, rising.
    """
    counts = row["speculation"]
    drafts = counts["num_drafts"]
    if not drafts:
        return 0
    gained: float = counts["num_accepted_tokens"] / drafts
    size: float = counts["num_draft_tokens"] / drafts
    drafting = level * min(size, len(counts["num_accepted_tokens_per_pos"]))

    def pays(rows: int) -> bool:
        return 1 + gained > costs.of(round(rows * (1 + size))) / costs.of(rows) + drafting

    return _largest(pays, sizes)


def _largest(pays: Callable[[int], bool], sizes: Sequence[int]) -> int:
    """Returns the last of the first sizes that all pay."""
    return max(takewhile(pays, sizes), default=0)


def _conditional(shares: Sequence[float], drafts: int) -> Iterator[float]:
    for before, share in pairwise((1.0, *shares)):
        if before * drafts < _FEW:
            return
        yield min(1.0, share / before)


def _hopeful(acceptance: Acceptance) -> Acceptance:
    """Returns an acceptance with half of the rejections gone: what to rule out beyond doubt."""
    if isinstance(acceptance, int | float):
        return (1 + acceptance) / 2
    return [(1 + rate) / 2 for rate in acceptance]
