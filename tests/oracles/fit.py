"""Whether draws follow a law that is known exactly."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import fsum

import numpy as np
from scipy import stats

Tokens = tuple[int, ...]


def joint_law(next_law: Callable[[Tokens], Sequence[float]], count: int) -> dict[Tokens, float]:
    """Returns the law of the first tokens, by the product over all ways.

    Args:
        next_law: The law of the next token after some tokens.
        count: Number of tokens.
    """
    law: dict[Tokens, float] = {(): 1.0}
    for _ in range(count):
        law = {
            (*before, token): mass * chance
            for before, mass in law.items()
            for token, chance in enumerate(next_law(before))
            if chance > 0
        }
    return law


def p_value(drawn: Iterable[Tokens], law: Mapping[Tokens, float], least: float = 5.0) -> float:
    """Returns the probability of a fit this bad, by chi-square.

    A rare cell is pooled with its rare siblings, which share all tokens but the last; if they
    are rare even together, with those that share all but the last two, and so on.

    Args:
        drawn: Tokens of each draw.
        law: Tokens to their probability.
        least: Draws to expect of a cell; rarer ones are pooled.
    """
    counts = Counter(drawn)
    if any(tokens not in law for tokens in counts):
        return 0.0
    number = sum(counts.values())
    masses = _pooled(law, least / number)
    cell_of = {tokens: cell for cell, members in masses.items() for tokens in members}
    observed = dict.fromkeys(masses, 0)
    for tokens, times in counts.items():
        observed[cell_of[tokens]] += times
    expected = [number * fsum(law[tokens] for tokens in members) for members in masses.values()]
    scale = number / fsum(expected)
    return float(stats.chisquare(list(observed.values()), [scale * e for e in expected]).pvalue)


def num_cells(law: Mapping[Tokens, float], number: int, least: float = 5.0) -> int:
    """Returns the number of cells that so many draws can be compared in."""
    return len(_pooled(law, least / number))


def _pooled(law: Mapping[Tokens, float], least: float) -> dict[Tokens, list[Tokens]]:
    """Cells to their members: a cell is named after what its members share."""
    cells = {tokens: [tokens] for tokens in law}
    for length in reversed(range(max(map(len, law)))):
        rare: dict[Tokens, list[Tokens]] = defaultdict(list)
        for name, members in list(cells.items()):
            if len(name) > length and fsum(law[tokens] for tokens in members) < least:
                rare[name[:length]] += cells.pop(name)
        cells.update(rare)
    if len(cells) > 1 and () in cells and fsum(law[tokens] for tokens in cells[()]) < least:
        smallest = min(cells.keys() - {()}, key=lambda name: fsum(law[t] for t in cells[name]))
        cells[smallest] += cells.pop(())
    return cells


def uniform_p_value(numbers: Sequence[float], num_bins: int = 20) -> float:
    """Returns the probability of numbers this uneven, were they uniform in [0, 1)."""
    return float(stats.chisquare(np.histogram(numbers, num_bins, (0.0, 1.0))[0]).pvalue)
