"""Means over questions with bootstrap intervals, and differences between two runs of the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specrag.evaluation.metrics.figure import Figure

RESAMPLES = 1000
FEWEST = 6
"""Items below which no difference is called significant: five of one sign happen by chance alone
more often than one time in twenty, and the bootstrap of so few does not know it."""

_CHUNK = 100  # resamples at a time, to bound the memory for large sets

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Difference:
    """How much one run is above another on the same items.

    Attributes:
        difference: Mean of the second minus mean of the first; None without common items.
        low: Lower end of its 95 % interval.
        high: Upper end.
        num_items: Items that both runs have a figure for.
    """

    difference: float | None
    low: float | None
    high: float | None
    num_items: int

    @property
    def significant(self) -> bool:
        """Whether the interval leaves out zero, over enough items."""
        if self.low is None or self.high is None or self.num_items < FEWEST:
            return False
        return not self.low <= 0 <= self.high


def interval(values: Sequence[float | None], seed: int = 0, resamples: int = RESAMPLES) -> Figure:
    """Returns the mean over items with its percentile bootstrap interval (Efron, 1979).

    Args:
        values: One figure an item; items without this measure are left out.
        seed: Of the resamples.
        resamples: How many.
    """
    kept = np.array([value for value in values if value is not None], dtype=np.float64)
    if not kept.size:
        return Figure(None, None, None, 0)
    low, high = bounds(_resampled_means(kept, seed, resamples))
    return Figure(float(kept.mean()), low, high, int(kept.size))


def paired_difference(
    first: Sequence[float | None],
    second: Sequence[float | None],
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Difference:
    """Returns how much the second run is above the first, item by item.

    Args:
        first: One figure an item.
        second: The same items in the same order.
        seed: Of the resamples.
        resamples: How many.
    """
    pairs = zip(first, second, strict=True)
    found = interval(
        [b - a if a is not None and b is not None else None for a, b in pairs], seed, resamples
    )
    return Difference(found.value, found.low, found.high, found.num_items)


def percentiles(values: Sequence[float]) -> Mapping[str, float | None]:
    """Returns mean, median, 90th and 99th percentile; all None without values.

    Args:
        values: One figure an item.
    """
    if not values:
        return dict.fromkeys(("mean", "p50", "p90", "p99"))
    ranks = np.percentile(values, [50, 90, 99])
    figures = zip(("p50", "p90", "p99"), ranks, strict=True)
    return {
        "mean": round(float(np.mean(values)), 4),
        **{name: round(float(value), 4) for name, value in figures},
    }


def bounds(resampled: Array) -> tuple[float, float]:
    """Returns the middle 95 % of resampled figures.

    Args:
        resampled: One figure a resample.
    """
    low, high = np.quantile(resampled, [0.025, 0.975])
    return float(low), float(high)


def _resampled_means(values: Array, seed: int, resamples: int) -> Array:
    random = np.random.default_rng(seed)
    means = []
    for start in range(0, resamples, _CHUNK):
        size = (min(_CHUNK, resamples - start), len(values))
        means.append(values[random.integers(len(values), size=size)].mean(axis=1))
    return np.concatenate(means)
