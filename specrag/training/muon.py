"""Muon, in the precision of the weights: torch's own works in bfloat16, which many CPUs lack."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch.optim import Optimizer

# Of a quintic iteration that brings all singular values near 1 in five steps (Jordan et al., 2024).
_A, _B, _C = 3.4445, -4.7750, 2.0315
_STEPS = 5
_EPS = 1e-7


class Muon(Optimizer):
    """Momentum whose update is made orthogonal, for matrices (Jordan et al., 2024).

    A step is scaled to the size of AdamW's, as "Muon is Scalable for LLM Training" (Liu et al.,
    2025) does, so that both take the same learning rates. ``torch.optim.Muon`` does the same in
    bfloat16; on a processor without units for it, a step took a hundred times as long.

    Args:
        params: Matrices.
        lr: Learning rate.
        weight_decay: Of the weights, apart from the gradient.
        momentum: Of the gradients.
    """

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        lr: float,
        weight_decay: float = 0.01,
        momentum: float = 0.95,
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Changes the weights.

        Args:
            closure: Is not used.
        """
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._change(parameter, group)

    def _change(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
        state, gradient = self.state[parameter], parameter.grad
        assert gradient is not None, "only weights with a gradient change"
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        held = state["momentum_buffer"]
        held.lerp_(gradient, 1 - group["momentum"])
        update = orthogonal(gradient.lerp(held, group["momentum"]))
        scale = 0.2 * math.sqrt(max(parameter.shape))
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.add_(update, alpha=-group["lr"] * scale)


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """Returns about the nearest matrix whose singular values are all 1.

    Args:
        matrix: ``[n, m]``.
    """
    turned = matrix.shape[0] > matrix.shape[1]
    found: torch.Tensor = matrix.T if turned else matrix
    found = found / found.norm().clamp(min=_EPS)
    for _ in range(_STEPS):
        gram = found @ found.T
        found = _A * found + (_B * gram + _C * gram @ gram) @ found
    return found.T if turned else found
