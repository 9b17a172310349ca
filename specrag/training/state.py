"""What a stopped training goes on from: weights, optimizers and counters, without any pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim import Optimizer

_WEIGHTS = "weights"
_SEPARATOR = "//"


def save_state(
    path: Path,
    model: nn.Module,
    optimizers: Sequence[Optimizer],
    counters: Mapping[str, Any],
) -> None:
    """Writes the state of a training in one step: the file is the old one or the new one.

    Args:
        path: A safetensors file.
        model: Whose trained weights are kept.
        optimizers: In a fixed order.
        counters: Plain data.
    """
    tensors = {
        f"{_WEIGHTS}{_SEPARATOR}{name}": parameter.detach().contiguous()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }
    plain: dict[str, Any] = {}
    for number, optimizer in enumerate(optimizers):
        for key, values in optimizer.state_dict()["state"].items():
            for name, value in values.items():
                place = _SEPARATOR.join((str(number), str(key), name))
                if isinstance(value, torch.Tensor):
                    tensors[place] = value.detach().contiguous()
                else:
                    plain[place] = value
    text = {"counters": json.dumps(dict(counters)), "plain": json.dumps(plain)}
    beside = path.with_suffix(".part")
    save_file(tensors, beside, metadata=text)
    beside.replace(path)


def load_state(path: Path, model: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, Any]:
    """Puts a state back, and returns the counters.

    Args:
        path: What ``save_state`` wrote.
        model: Of the same shape.
        optimizers: Made for its weights as before.
    """
    from_file = load_file(path)
    text = _metadata(path)
    weights = {
        name.split(_SEPARATOR, 1)[1]: tensor
        for name, tensor in from_file.items()
        if name.startswith(_WEIGHTS + _SEPARATOR)
    }
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(weights[name])
    for number, optimizer in enumerate(optimizers):
        _restore(optimizer, number, {**from_file, **json.loads(text["plain"])})
    counters: dict[str, Any] = json.loads(text["counters"])
    return counters


def _restore(optimizer: Optimizer, number: int, found: Mapping[str, Any]) -> None:
    content = optimizer.state_dict()
    state: dict[int, dict[str, Any]] = {}
    for place, value in found.items():
        parts = place.split(_SEPARATOR)
        if parts[0] == str(number):
            state.setdefault(int(parts[1]), {})[parts[2]] = value
    content["state"] = state
    optimizer.load_state_dict(content)


def _metadata(path: Path) -> dict[str, str]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    found: dict[str, str] = header["__metadata__"]
    return found
