"""The optimizer of all trainings: Muon for matrices, AdamW for the rest, one curve of rates."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from specrag.errors import ConfigError, suggest
from specrag.training.muon import Muon

OPTIMIZERS = ("muon", "adamw")


@dataclass(frozen=True, slots=True)
class OptimizerSettings:
    """How weights are changed.

    Attributes:
        name: ``muon`` (Jordan et al., 2024) or ``adamw``; norms, biases, embeddings and LM heads
            are AdamW's in both cases.
        learning_rate: Of matrices at its highest. Muon's steps are scaled to the size of
            AdamW's, so the same rate suits both.
        weight_decay: Of matrices.
        warmup: Share of all steps in which the rate rises; it falls to nothing over the rest.
        max_norm: Largest norm of all gradients together.
    """

    name: str = "muon"
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    warmup: float = 0.03
    max_norm: float = 1.0

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZERS:
            raise ConfigError(f"unknown optimizer {self.name!r}; {suggest(self.name, OPTIMIZERS)}")
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"learning_rate must be above 0, got {self.learning_rate}")


def make_optimizers(
    named: Iterable[tuple[str, nn.Parameter]], settings: OptimizerSettings
) -> list[Optimizer]:
    """Returns the optimizers of some weights, each weight in one of them.

    Args:
        named: Weights by name.
        settings: How they are changed.
    """
    groups: dict[str, list[nn.Parameter]] = {"matrix": [], "vocabulary": [], "vector": []}
    for name, parameter in named:
        if parameter.requires_grad:
            groups[_kind(name, parameter)].append(parameter)
    rate, decay = settings.learning_rate, settings.weight_decay
    adamw: list[dict[str, object]] = [
        {"params": groups["vocabulary"], "weight_decay": decay},
        {"params": groups["vector"], "weight_decay": 0.0},
    ]
    optimizers: list[Optimizer] = []
    if settings.name == "muon" and groups["matrix"]:
        optimizers.append(Muon(groups["matrix"], rate, decay))
    else:
        adamw.append({"params": groups["matrix"], "weight_decay": decay})
    adamw = [group for group in adamw if group["params"]]
    if adamw:
        optimizers.append(AdamW(adamw, rate, betas=(0.9, 0.95)))
    return optimizers


def rate_at(step: int, num_steps: int, settings: OptimizerSettings) -> float:
    """Returns the learning rate of a step: up in a line, down in a cosine.

    Args:
        step: From 0.
        num_steps: Of the whole training.
        settings: The highest rate and the warmup.
    """
    rising = max(1, round(settings.warmup * num_steps))
    if step < rising:
        return settings.learning_rate * (step + 1) / rising
    passed = (step - rising) / max(1, num_steps - rising)
    return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, passed)))


def _kind(name: str, parameter: torch.Tensor) -> str:
    if parameter.ndim != 2:
        return "vector"
    return "vocabulary" if "lm_head" in name or "embed_tokens" in name else "matrix"
