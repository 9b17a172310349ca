"""Pinned threads: as many as asked for, each process of a run on the same processors."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from specrag.errors import ConfigError

_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


@contextlib.contextmanager
def pinned_threads(count: int | None = None) -> Iterator[int]:
    """Holds this process, and those that it starts, to some processors for a while.

    One processor a core before a second one of the same core. Where a system has no affinity,
    only the number of torch's threads is set.

    Args:
        count: Threads; None takes as many as torch would.

    Yields:
        The number of threads.

    Raises:
        ConfigError: There are not as many processors.
    """
    before = torch.get_num_threads()
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    threads = before if count is None else count
    if count is not None and allowed and count > len(allowed):
        raise ConfigError(
            f"there are {len(allowed)} processors for {count} threads",
            hint=f"ask for {len(allowed)} at most",
        )
    try:
        torch.set_num_threads(threads)
        if allowed:
            os.sched_setaffinity(0, spread(allowed, _siblings)[:threads])
        yield threads
    finally:
        torch.set_num_threads(before)
        if allowed:
            os.sched_setaffinity(0, allowed)


def spread(processors: Sequence[int], siblings: Callable[[int], Sequence[int]]) -> list[int]:
    """Orders processors so that each core comes once before any comes again.

    Args:
        processors: Numbers of processors.
        siblings: Tells which of them share the core of one, itself included.
    """
    allowed = set(processors)

    def rank(processor: int) -> tuple[int, int]:
        core = sorted(allowed & {processor, *siblings(processor)})
        return core.index(processor), processor

    return sorted(processors, key=rank)


def _siblings(processor: int) -> list[int]:
    """Reads a list such as ``0,32`` or ``0-1``; a system that keeps none has one a core."""
    try:
        text = Path(_TOPOLOGY.format(processor)).read_text(encoding="utf-8").strip()
        ends = [[int(end) for end in part.split("-")] for part in text.split(",")]
    except (OSError, ValueError):
        return [processor]
    return [number for part in ends for number in range(part[0], part[-1] + 1)]
