from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from specrag.errors import ConfigError
from specrag.training.optimizer import OPTIMIZERS, OptimizerSettings, make_optimizers
from specrag.training.state import load_state, read_counters, save_state


def net(seed: int) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = nn.Sequential(nn.Linear(4, 6), nn.RMSNorm(6), nn.Linear(6, 3, bias=False))
    made[1].weight.requires_grad_(False)
    return made


def step(model: nn.Module, optimizers: list[Optimizer], seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.randn(parameter.shape, generator=draw)
    for optimizer in optimizers:
        optimizer.step()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_is_put_back_goes_on_alike(name: str, tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    models = [net(0), net(7)]
    optimizers = [make_optimizers(m.named_parameters(), OptimizerSettings(name)) for m in models]
    for seed in range(3):
        step(models[0], optimizers[0], seed)
    counters = {"step": 3, "nested": {"a": [1.1, None]}}
    save_state(path, models[0], optimizers[0], counters)
    assert read_counters(path) == counters
    load_state(path, models[1], optimizers[1])
    for seed in range(3, 6):
        for model, own in zip(models, optimizers, strict=True):
            step(model, own, seed)
    frozen = models[0][1].weight
    for ours, theirs in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(ours, theirs) or ours is frozen
    assert not list(tmp_path.glob("*.part"))


def test_a_state_that_fails_to_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, model = tmp_path / "state.safetensors", net(0)
    save_state(path, model, [], {"step": 1})

    def full(tensors: object, file: Path, metadata: object) -> None:
        file.write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr("specrag.training.state.save_file", full)
    with pytest.raises(OSError, match="no space left"):
        save_state(path, model, [], {"step": 2})
    assert read_counters(path) == {"step": 1}
    load_state(path, model, [])


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (nn.Sequential(nn.Linear(4, 5), nn.RMSNorm(6), nn.Linear(6, 3, bias=False)), r"0\.bias"),
        (nn.Sequential(nn.Linear(4, 6)), r"2\.weight is \(3, 6\), not missing"),
        (nn.Sequential(nn.Linear(4, 6), nn.RMSNorm(6), nn.Linear(6, 3)), r"1\.weight is missing"),
    ],
)
def test_other_weights_are_refused_and_left_alone(
    other: nn.Module, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "state.safetensors"
    save_state(path, net(0), [], {})
    before = [parameter.detach().clone() for parameter in other.parameters()]
    with pytest.raises(ConfigError, match=f"a training of other weights: {said}"):
        load_state(path, other, [])
    assert all(map(torch.equal, before, other.parameters()))
