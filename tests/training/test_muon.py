from __future__ import annotations

import pytest
import torch
from torch import nn

from specrag.training.muon import Muon, orthogonal


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(8, 8), (16, 24), (24, 16), (3, 40), (40, 3), (1, 9)])
@pytest.mark.parametrize("size", [1e-4, 1.0, 1e5])
def test_singular_values_come_near_one(shape: tuple[int, int], size: float) -> None:
    matrix = size * draw(*shape)
    found = orthogonal(matrix)
    assert found.shape == shape
    values = torch.linalg.svdvals(found)
    assert 0.6 < float(values.min()) <= float(values.max()) < 1.3
    # The directions stay: it is the nearest such matrix, about.
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    inner = left.T @ found @ right.T
    assert float((inner - inner.diagonal().diag()).abs().max()) < 1e-3


def test_nothing_becomes_nothing() -> None:
    assert torch.equal(orthogonal(torch.zeros(4, 6)), torch.zeros(4, 6))


@pytest.mark.parametrize("shape", [(16, 24), (24, 16)])
def test_steps_are_those_of_torch(shape: tuple[int, int]) -> None:
    ours, theirs = (nn.Parameter(draw(*shape, seed=1)) for _ in range(2))
    start = ours.detach().clone()
    mine = Muon([ours], 0.05, weight_decay=0.1, momentum=0.9)
    other = torch.optim.Muon(
        [theirs], lr=0.05, weight_decay=0.1, momentum=0.9, adjust_lr_fn="match_rms_adamw"
    )
    for step in range(3):
        for parameter, optimizer in ((ours, mine), (theirs, other)):
            parameter.grad = draw(*shape, seed=10 + step)
            optimizer.step()
    moved, expected = ours.detach() - start, theirs.detach() - start
    assert float(expected.norm()) > 0.1
    # Five steps of an iteration in bfloat16, whose rounding is a part in 256.
    assert float((moved - expected).norm() / expected.norm()) < 0.03


def test_weights_without_a_gradient_only_wait() -> None:
    still, moving = nn.Parameter(draw(3, 3)), nn.Parameter(draw(3, 3))
    before = still.detach().clone()
    moving.grad = draw(3, 3, seed=2)
    Muon([still, moving], 0.1).step()
    assert torch.equal(still.detach(), before)
    assert not torch.equal(moving.detach(), before)
