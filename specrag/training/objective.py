"""Objective: what one batch gave a training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch

COUNT = "/count"
"""Behind the name of a metric: what it is a sum of, where that is not ``positions``."""


class Objective(NamedTuple):
    """The loss of a batch and what was counted on the way.

    Attributes:
        loss: To minimise, a scalar.
        metrics: Sums over the batch by name; ``positions`` counts what they are sums of,
            unless one has a ``COUNT`` of its own.
    """

    loss: torch.Tensor
    metrics: Mapping[str, float]
