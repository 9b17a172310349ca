from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.optim import AdamW

from specrag.errors import ConfigError
from specrag.training.muon import Muon
from specrag.training.optimizer import OptimizerSettings, make_optimizers, rate_at


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 6)
        self.norm = nn.RMSNorm(6)
        self.embed_tokens = nn.Embedding(9, 4)
        self.lm_head = nn.Linear(6, 9, bias=False)
        self.frozen = nn.Parameter(torch.ones(2, 2), requires_grad=False)


def test_each_weight_is_in_one_group_with_its_own_decay() -> None:
    net = Net()
    settings = OptimizerSettings(weight_decay=0.3)
    muon, adamw = make_optimizers(net.named_parameters(), settings)
    assert isinstance(muon, Muon)
    assert isinstance(adamw, AdamW)
    groups = [*muon.param_groups, *adamw.param_groups]
    found = [([id(p) for p in group["params"]], group["weight_decay"]) for group in groups]
    vectors = [id(net.fc.bias), id(net.norm.weight)]
    tables = [id(net.embed_tokens.weight), id(net.lm_head.weight)]
    assert found == [([id(net.fc.weight)], 0.3), (tables, 0.3), (vectors, 0.0)]


def test_adamw_takes_them_all() -> None:
    net = Net()
    (adamw,) = make_optimizers(net.named_parameters(), OptimizerSettings("adamw"))
    assert isinstance(adamw, AdamW)
    taken = {id(p) for group in adamw.param_groups for p in group["params"]}
    assert taken == {id(p) for p in net.parameters() if p.requires_grad}


def test_without_matrices_there_is_no_muon() -> None:
    (found,) = make_optimizers(nn.RMSNorm(3).named_parameters(), OptimizerSettings())
    assert isinstance(found, AdamW)


@pytest.mark.parametrize(("num_steps", "warmup"), [(1, 0.03), (2, 0.5), (100, 0.1), (1000, 0.0)])
def test_the_rate_rises_in_a_line_and_falls_to_nothing(num_steps: int, warmup: float) -> None:
    settings = OptimizerSettings(learning_rate=0.4, warmup=warmup)
    rates = [rate_at(step, num_steps, settings) for step in range(num_steps)]
    rising = max(1, round(warmup * num_steps))
    assert rates[:rising] == pytest.approx([0.4 * (n + 1) / rising for n in range(rising)])
    assert max(rates) == pytest.approx(0.4)
    assert all(a >= b for a, b in itertools.pairwise(rates[rising:]))
    assert min(rates) > 0  # a step that changes nothing would be lost
    if num_steps >= 100:
        assert rates[-1] < 0.001
        middle = rates[(rising + num_steps) // 2]
        assert middle == pytest.approx(0.2, rel=0.1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "muno"}, "unknown optimizer 'muno'; did you mean 'muon'"),
        ({"name": "sgd"}, "unknown optimizer 'sgd'"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0, got 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate must be above 0, got nan"),
        ({"learning_rate": float("inf")}, "learning_rate must be"),
    ],
)
def test_settings_that_are_none_are_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        OptimizerSettings(**change)  # type: ignore[arg-type]
