"""Merges ranked lists of ids into one. Depends on errors alone."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from specrag.errors import ConfigError

RRF_CONSTANT = 60  # what Cormack et al. use; larger ones let low ranks count more


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[int]],
    *,
    weights: Sequence[float] | None = None,
    constant: float = RRF_CONSTANT,
) -> list[tuple[float, int]]:
    """Ranks ids by the sum of ``weight / (constant + rank)`` over the lists that hold them.

    From Cormack, Clarke and Büttcher, "Reciprocal rank fusion outperforms Condorcet and
    individual rank learning methods" (2009). Only ranks count, so the lists may come from scores
    that cannot be compared.

    Args:
        rankings: Lists of ids, best first; an id that repeats in a list counts where it is first.
        weights: How much each list counts; all the same by default. A list of weight 0 counts
            not at all.
        constant: Added to each rank, which starts at 1.

    Returns:
        Scores with ids, best first; equal scores in the order of their best rank, then of ids.

    Raises:
        ConfigError: A weight or the constant is negative or not finite, or the number of weights
            is not that of lists.
    """
    weights = [1.0] * len(rankings) if weights is None else weights
    if len(weights) != len(rankings):
        raise ConfigError(f"{len(rankings)} lists need as many weights, got {len(weights)}")
    if not all(math.isfinite(value) and value >= 0 for value in (*weights, constant)):
        raise ConfigError(
            "weights and the constant of fusion must be at least 0 and finite, "
            f"got {list(weights)} and {constant}"
        )
    parts: dict[int, list[float]] = defaultdict(list)
    best: dict[int, int] = {}
    for ranking, weight in zip(rankings, weights, strict=True):
        if not weight:
            continue
        for rank, number in enumerate(dict.fromkeys(ranking), 1):
            parts[number].append(weight / (constant + rank))
            best[number] = min(rank, best.get(number, rank))
    # `fsum` rounds once, so that the order of the lists changes nothing.
    fused = [(math.fsum(values), number) for number, values in parts.items()]
    return sorted(fused, key=lambda hit: (-hit[0], best[hit[1]], hit[1]))
