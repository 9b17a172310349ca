"""The worker's side of the wire: one start message, then one reply a request, as JSON lines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

Engine = Callable[[list[int], int, int], dict[str, Any]]


def serve(open_engine: Callable[[dict[str, Any]], tuple[Engine, dict[str, Any]]]) -> None:
    """Answers requests until there are no more.

    Args:
        open_engine: Takes the start message; returns what decodes a prompt (token ids, most and
            fewest tokens) and the details of the engine.
    """
    # Libraries print as they like: what they say goes to the log, the wire is a copy of its own.
    wire = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    engine, details = open_engine(json.loads(sys.stdin.readline()))
    _send(wire, {"details": details})
    for line in sys.stdin:
        request = json.loads(line)
        reply = engine(request["prompt_ids"], request["max_tokens"], request["min_tokens"])
        _send(wire, {"peak_memory_mb": peak_memory_mb("self"), **reply})


def peak_memory_mb(process: str | int) -> float | None:
    """Returns the most memory that a process has held, in MiB; None where that is not told.

    Args:
        process: Its number, or ``self``.
    """
    try:
        with open(f"/proc/{process}/status", encoding="ascii") as status:  # noqa: PTH123
            sizes = [line.split()[1] for line in status if line.startswith("VmHWM")]
    except OSError:
        return None
    return int(sizes[0]) / 1024 if sizes else None


def _send(wire: Any, message: dict[str, Any]) -> None:
    wire.write(json.dumps(message) + "\n")
    wire.flush()
