"""Measuring what a pass of a target and a level of a draft cost on this machine, once."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from specrag.decoding.budget import PassCosts, SpeculationConfig
from specrag.decoding.drafter import Drafter
from specrag.decoding.level import SIZES, DraftLevel, pass_actions
from specrag.home import home
from specrag.models.target import TargetModel
from specrag.models.tokenizer import Tokenizer

_ROUNDS = 5
_ENOUGH_SECONDS = 3.0  # a precision without units in the processor is slow by far; once will do


def costs_of(
    target: TargetModel,
    tokenizer: Tokenizer,
    drafter: Drafter,
    config: SpeculationConfig | None = None,
) -> PassCosts | None:
    """Returns the costs of a target and of drafting for it; None where nobody asks for them.

    Args:
        target: A loaded target.
        tokenizer: The target's.
        drafter: Is bound to the target.
        config: How much is drafted; only the policy ``goodput`` asks for costs.
    """
    settings = config or SpeculationConfig()
    silent = drafter.name == "none" or not settings.num_speculative_tokens
    if target.no_speculation or silent or settings.policy != "goodput":
        return None
    costs = known_costs(target)
    drafter.bind(target, tokenizer, costs)
    # A drafter without a model looks its drafts up in microseconds: nothing to count.
    levels = [known_draft_level(target, level) for level in drafter.levels]
    return replace(costs, draft_level=sum(levels))


def known_costs(target: TargetModel) -> PassCosts:
    """Returns the costs measured earlier for this target on this machine, or measures them.

    They are kept, so that all processes decide alike: what is drafted then depends on the text
    alone, not on how busy the machine was at start.

    Args:
        target: A loaded target.
    """

    def read(content: Any) -> PassCosts:
        # An empty or uneven table (a disk that was full) is a ValueError: measured again.
        pairs = list(zip(content["num_nodes"], content["relative"], strict=True))
        sizes, relative = zip(*pairs, strict=True)
        return PassCosts(sizes, relative)

    def measure() -> Any:
        costs = measure_costs(target)
        return {"num_nodes": costs.num_nodes, "relative": costs.relative}

    return read(_kept(_path(_identity(target)), measure, read))


def known_draft_level(target: TargetModel, level: DraftLevel) -> float:
    """Returns what a level of a draft costs on the scale of a pass of the target.

    Args:
        target: Gives the scale.
        level: Is computed once for each level of a draft.
    """

    def measure() -> Any:
        seconds = _fastest([*pass_actions(target, [1]), level.prepare()])
        return {"draft_level": round(seconds[1] / seconds[0], 4)}

    path = _path(_identity(target), level.identity)
    content = _kept(path, measure, lambda found: float(found["draft_level"]))
    return float(content["draft_level"])


def measure_costs(target: TargetModel) -> PassCosts:
    """Times passes of several sizes, interleaved; the fastest of each counts.

    Other work on the machine only ever makes a pass slower, so the minimum is the fair figure.

    Args:
        target: A loaded target.
    """
    sizes = [size for size in SIZES if size == 1 or size < target.max_context // 2]
    best = _fastest(pass_actions(target, sizes))
    # A larger pass is never cheaper; what looks so is noise.
    relative = [max(best[: i + 1]) / best[0] for i in range(len(sizes))]
    return PassCosts(tuple(sizes), tuple(round(value, 3) for value in relative))


def _fastest(actions: list[Callable[[], object]]) -> list[float]:
    """Returns the seconds that each action took when it was fastest."""
    best = [float("inf")] * len(actions)
    begun = time.monotonic()
    for _ in range(_ROUNDS):
        for index, action in enumerate(actions):
            started = time.perf_counter()
            action()
            best[index] = min(best[index], time.perf_counter() - started)
        if time.monotonic() - begun > _ENOUGH_SECONDS:
            break
    return best


def _kept(path: Path, measure: Callable[[], Any], read: Callable[[Any], object]) -> Any:
    """Returns the content of a file, measured and written when it is missing or unreadable."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        read(content)
    except (OSError, ValueError, KeyError, TypeError):
        content = measure()
    else:
        return content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        partial.write_text(json.dumps(content), encoding="utf-8")
        partial.replace(path)
    except OSError:
        pass  # a home that cannot be written to costs a second at each start, nothing else
    return content


def _identity(model: TargetModel) -> tuple[object, ...]:
    return model.fingerprint, model.dtype, model.quantization, model.device


def _path(*identities: tuple[object, ...]) -> Path:
    machine = [
        *identities,
        torch.__version__,
        torch.get_num_threads(),
        platform.machine(),
        torch.backends.cpu.get_cpu_capability(),
        os.cpu_count(),
    ]
    key = hashlib.sha256(repr(machine).encode()).hexdigest()[:16]
    return home() / "pass_costs" / f"{key}.json"
