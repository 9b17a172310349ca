"""EAGLE-2's tree by its definition: all candidates first, every choice by sorting whole lists."""

from __future__ import annotations

from collections.abc import Callable

Path = tuple[int, ...]
LogProbs = Callable[[Path], list[float]]
"""Path to the log-probability of every token behind it."""


def eagle2_tree(
    log_probs: LogProbs, num_nodes: int, max_depth: int, branching: int, width: int
) -> dict[Path, float]:
    """Returns the drafted paths and their scores, nothing being left out for speed."""
    pool: list[tuple[float, int, int, Path]] = []  # negative score, depth, age, path
    expanded: list[tuple[float, Path]] = [(0.0, ())]
    for depth in range(1, max_depth + 1):
        level: list[tuple[float, int, int, Path]] = []
        for score, path in expanded:
            steps = log_probs(path)
            tokens = sorted(range(len(steps)), key=lambda token: (-steps[token], token))
            for token in tokens[:branching]:
                total = score + steps[token]
                level.append((-total, depth, len(pool) + len(level), (*path, token)))
        pool += level
        expanded = [(-negative, path) for negative, _, _, path in sorted(level)[:width]]
    return {path: -negative for negative, _, _, path in sorted(pool)[:num_nodes]}
