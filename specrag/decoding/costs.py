"""Measuring what a pass of a target costs on this machine, once."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time

import torch

from specrag.decoding.budget import PassCosts
from specrag.decoding.tree import DraftTree, pack
from specrag.home import home
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.target import TargetModel

SIZES = (1, 2, 4, 8, 16, 32)
_ROUNDS = 5
_CONTEXT_TOKENS = 128


def known_costs(target: HuggingFaceTarget) -> PassCosts:
    """Returns the costs measured earlier for this target on this machine, or measures them.

    They are kept, so that all processes decide alike: what is drafted then depends on the text
    alone, not on how busy the machine was at start.

    Args:
        target: A loaded target.
    """
    path = home() / "pass_costs" / f"{_key(target)}.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        # An empty or uneven table (a disk that was full) is a ValueError: measured again.
        pairs = list(zip(content["num_nodes"], content["relative"], strict=True))
        sizes, relative = zip(*pairs, strict=True)
        return PassCosts(sizes, relative)
    except (OSError, ValueError, KeyError, TypeError):
        costs = measure_costs(target)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        content = {"num_nodes": costs.num_nodes, "relative": costs.relative}
        partial.write_text(json.dumps(content), encoding="utf-8")
        partial.replace(path)
    except OSError:
        pass  # a home that cannot be written to costs a second at each start, nothing else
    return costs


def measure_costs(target: TargetModel) -> PassCosts:
    """Times passes of several sizes, interleaved; the fastest of each counts.

    Other work on the machine only ever makes a pass slower, so the minimum is the fair figure.

    Args:
        target: A loaded target.
    """
    sizes = [size for size in SIZES if size == 1 or size < target.max_context // 2]
    context = max(1, min(_CONTEXT_TOKENS, target.max_context - max(sizes)))
    cache = target.new_cache(1, context + max(sizes))
    target.prefill([[index % target.vocab_size for index in range(context)]], cache)
    best = dict.fromkeys(sizes, float("inf"))
    for _ in range(_ROUNDS):
        for size in sizes:
            tree_pass = pack([0], [DraftTree.chain([0] * (size - 1))])
            started = time.perf_counter()
            # Reading a figure back waits for an accelerator to finish.
            target.forward(tree_pass, cache).logits[0, -1, 0].item()
            best[size] = min(best[size], time.perf_counter() - started)
    # A larger pass is never cheaper; what looks so is noise.
    relative = [max(best[s] for s in sizes[: i + 1]) / best[1] for i in range(len(sizes))]
    return PassCosts(tuple(sizes), tuple(round(value, 3) for value in relative))


def _key(target: HuggingFaceTarget) -> str:
    machine = [
        target.fingerprint,
        target.dtype,
        target.device,
        torch.__version__,
        torch.get_num_threads(),
        platform.machine(),
        torch.backends.cpu.get_cpu_capability(),
        os.cpu_count(),
    ]
    return hashlib.sha256(repr(machine).encode()).hexdigest()[:16]
