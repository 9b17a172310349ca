"""How sure a ratio of sums over prompts is: the bootstrap, with prompts drawn anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from specrag.evaluation.metrics.intervals import Array, bounds

_RESAMPLES = 2000


def interval(
    columns: Sequence[Sequence[float]], figure: Callable[..., Array], seed: int = 0
) -> tuple[float, float] | None:
    """Returns the 95 % interval of a figure that is calculated from sums over prompts.

    The percentile bootstrap (Efron, 1979): the prompts are drawn with replacement, as many as
    there are, and a prompt brings all its columns, so that arms are compared on the same prompts.

    Args:
        columns: Values of the prompts, one sequence for each kind of value.
        figure: Calculates from the sums of the columns, each ``[draws]``.
        seed: Of the draws.

    Returns:
        The lower and the upper end; None for fewer than two prompts, of which nothing is known.
    """
    values = np.asarray(columns, dtype=np.float64)
    count = values.shape[1]
    if count < 2:
        return None
    times = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), _RESAMPLES)
    return bounds(figure(*(values @ times.T)))
