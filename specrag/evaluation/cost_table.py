"""Where the cost of a pass by its size comes from: this machine, a file, or typed figures."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from specrag.decoding.budget import PassCosts
from specrag.decoding.costs import known_costs
from specrag.errors import ConfigError, SpecragError
from specrag.home import home
from specrag.models.devices import pick_device, pick_dtype, pick_quantization
from specrag.models.embedded import ModelSource, resolve
from specrag.models.loader import load_target

_HINT = 'allowed: measured, flat, a JSON file, or pairs of nodes and time such as "1:29,8:32,16:42"'


@dataclass(frozen=True, slots=True)
class CostTable:
    """What a pass costs, and how that is known.

    Attributes:
        costs: By the size of the pass; None where all sizes cost the same.
        source: For the reader of a report.
    """

    costs: PassCosts | None
    source: str


def read_costs(
    spec: str,
    model: str,
    *,
    dtype: str = "auto",
    on_load: Callable[[], None] = lambda: None,
) -> CostTable:
    """Returns the table that a user asked for.

    Args:
        spec: ``measured``, ``flat``, the path of a JSON file, or pairs ``nodes:time``.
        model: Target to measure, for ``measured``.
        dtype: Its precision, for ``measured``.
        on_load: Called before a model is loaded, which takes seconds.

    Raises:
        ConfigError: It is none of these, or the figures cannot be costs.
        ModelError: The target cannot be loaded.
    """
    if spec == "measured":
        return measured_costs(model, dtype=dtype, on_load=on_load)
    if spec == "flat":
        return CostTable(None, "flat: a pass of any size costs the same")
    path = Path(spec)
    if path.is_file():
        return CostTable(_of_json(_read_json(path), spec), f"from {path.name}")
    if ":" in spec and not spec.endswith(".json"):
        return CostTable(_of_pairs(spec), "as typed")
    raise ConfigError(f"no such pass costs: {spec!r}", hint=_HINT)


def measured_costs(
    model: str, *, dtype: str = "auto", on_load: Callable[[], None] = lambda: None
) -> CostTable:
    """Returns what this machine measured for a target; the target is loaded only the first time.

    The table lies beside those of ``known_costs``, which are kept by the weights and can be
    found only with the model loaded; this one is kept by the model's files.

    Args:
        model: An embedded name, a hub name, a local folder or a ``.gguf`` path.
        dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``.
        on_load: Called before the model is loaded.

    Raises:
        ConfigError: The target cannot verify a draft.
        ModelError: The target cannot be fetched or loaded.
    """
    source = resolve(model)
    precision = str(pick_dtype(dtype, pick_device("auto"))).removeprefix("torch.")
    packed = pick_quantization("auto", dtype, pick_device("auto"))
    if packed != "none":
        precision = f"{packed} weights"
    about = f"{source.name}, {precision}, this machine"
    path = _kept_path(source, precision)
    if path is not None:
        try:
            return CostTable(_of_json(_read_json(path), path.name), f"measured earlier: {about}")
        except SpecragError:
            pass  # not there yet, or damaged: written anew
    on_load()
    target = load_target(source, source.name, dtype=dtype, quantization="auto")
    if target.no_speculation:
        raise ConfigError(
            f"{source.name} decodes plainly, so there is nothing to measure: "
            f"{target.no_speculation}",
            hint="choose another --model, or give costs by hand, such as --costs flat",
        )
    costs = known_costs(target)
    if path is not None:
        _keep(path, costs)
    return CostTable(costs, f"measured: {about}, for which the model was loaded")


def _kept_path(source: ModelSource, precision: str) -> Path | None:
    """Returns the file of a local model; what a hub name stands for may change unseen."""
    folder = Path(source.path)
    if not folder.exists():
        return None
    files = sorted(folder.iterdir()) if folder.is_dir() else [folder]
    stats = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    machine = [
        torch.__version__,
        torch.get_num_threads(),
        torch.backends.cpu.get_cpu_capability(),
        platform.machine(),
        os.cpu_count(),
        str(pick_device("auto")),
    ]
    parts = [str(folder.resolve()), source.gguf_file, stats, precision, machine]
    key = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    return home() / "pass_costs" / "by_file" / f"{key}.json"


def _keep(path: Path, costs: PassCosts) -> None:
    content = {"num_nodes": costs.num_nodes, "relative": costs.relative}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        partial.write_text(json.dumps(content), encoding="utf-8")
        partial.replace(path)
    except OSError:
        pass  # the model is loaded again next time, nothing else


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read pass costs from {str(path)!r}: {error}") from error


def _of_json(content: Any, name: str) -> PassCosts:
    """Takes a table as kept in `pass_costs`, alone or inside the output of `advise --json`."""
    table = content.get("costs", content) if isinstance(content, dict) else None
    try:
        sizes, times = list(table["num_nodes"]), list(table["relative"])  # type: ignore[index]
        pairs = list(zip(sizes, times, strict=True))
        figures = [(int(size), float(time)) for size, time in pairs]
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{name!r} holds no pass costs",
            hint='it should look like {"num_nodes": [1, 2, 4], "relative": [1.0, 1.1, 1.2]}',
        ) from error
    return _checked(figures, name)


def _of_pairs(spec: str) -> PassCosts:
    figures = []
    for pair in spec.split(","):
        size, _, time = pair.partition(":")
        try:
            figures.append((int(size), float(time)))
        except ValueError as error:
            raise ConfigError(f"{pair!r} in {spec!r} is no pair nodes:time", hint=_HINT) from error
    return _checked(figures, spec)


def _checked(figures: Sequence[tuple[int, float]], name: str) -> PassCosts:
    """Scales times to those of one node, so that milliseconds may be given too."""
    sizes, times = zip(*figures, strict=True) if figures else ((), ())
    if not sizes or sizes[0] != 1 or list(sizes) != sorted(set(sizes)):
        raise ConfigError(f"the sizes of passes must rise from 1, got {list(sizes)} in {name!r}")
    if not all(math.isfinite(time) and time > 0 for time in times) or list(times) != sorted(times):
        raise ConfigError(
            f"the times of passes must be above 0 and never fall, got {list(times)} in {name!r}",
            hint="a larger pass is never cheaper; what looks so is noise: use the largest so far",
        )
    return PassCosts(sizes, tuple(time / times[0] for time in times))
