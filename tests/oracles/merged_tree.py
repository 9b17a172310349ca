"""The union of draft trees by exhaustive search, from paths alone."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

Path = tuple[int, ...]
Member = dict[Path, Fraction]
"""Each path of a tree, in the tree's own order, to the confidence that it is accepted."""


def merged(
    members: Sequence[Member], num_nodes: int, max_depth: int, branching: int
) -> list[tuple[Path, Fraction, tuple[int, ...]]]:
    """Returns paths, their confidences and the members that hold them, one node at a time.

    Each step looks at every path that could be added and takes the best of them.
    """
    chosen: list[Path] = []
    while len(chosen) < num_nodes:
        possible = [
            path
            for path in {path for member in members for path in member}
            if path not in chosen
            and len(path) <= max_depth
            and (len(path) == 1 or path[:-1] in chosen)
            and sum(other[:-1] == path[:-1] for other in chosen) < branching
        ]
        if not possible:
            break
        chosen.append(min(possible, key=lambda path: rank(path, members)))
    return [(path, confidence(path, members), holders(path, members)) for path in chosen]


def rank(path: Path, members: Sequence[Member]) -> tuple[Fraction, int, int, int]:
    first = holders(path, members)[0]
    return -confidence(path, members), len(path), first, list(members[first]).index(path)


def confidence(path: Path, members: Sequence[Member]) -> Fraction:
    return max(member[path] for member in members if path in member)


def holders(path: Path, members: Sequence[Member]) -> tuple[int, ...]:
    return tuple(place for place, member in enumerate(members) if path in member)
