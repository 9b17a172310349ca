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

from specrag.errors import ConfigError

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


def read_counters(path: Path) -> dict[str, Any]:
    """Returns the counters of a state.

    Args:
        path: What ``save_state`` wrote.
    """
    found: dict[str, Any] = json.loads(_metadata(path)["counters"])
    return found


def load_state(path: Path, model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
    """Puts weights and optimizers back.

    Args:
        path: What ``save_state`` wrote.
        model: Of the same shape.
        optimizers: Made for its weights as before.

    Raises:
        ConfigError: The state is that of other weights.
    """
    from_file = load_file(path)
    weights = {
        name.split(_SEPARATOR, 1)[1]: tensor
        for name, tensor in from_file.items()
        if name.startswith(_WEIGHTS + _SEPARATOR)
    }
    own = {name: p for name, p in model.named_parameters() if p.requires_grad}
    _check_shapes(path, weights, own)
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(weights[name])
    plain = json.loads(_metadata(path)["plain"])
    for number, optimizer in enumerate(optimizers):
        _restore(optimizer, number, {**from_file, **plain})


def _check_shapes(
    path: Path, found: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor]
) -> None:
    there = {name: tuple(tensor.shape) for name, tensor in found.items()}
    needed = {name: tuple(tensor.shape) for name, tensor in wanted.items()}
    for name in sorted({*there, *needed}):
        if there.get(name) != needed.get(name):
            raise ConfigError(
                f"{path} holds a training of other weights: {name} is "
                f"{there.get(name, 'missing')}, not {needed.get(name, 'missing')}",
                hint="name another folder, or remove this one",
            )


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
