"""Sorts the positions of a token sequence by what precedes them; knows nothing of files."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

Array = npt.NDArray[Any]

_SEEN = 2
"""Tokens before each position that the first sort compares, packed in one integer."""


def pair_keys(tokens: Array, separator: int) -> Array:
    """Packs the two tokens before each position, the nearer one first, in one integer.

    Args:
        tokens: ``[size]``, none above the separator.
        separator: Stands between texts, and for what would lie before the first token.

    Returns:
        ``[size]`` uint64.
    """
    padded = np.concatenate(([separator, separator], tokens)).astype(np.uint64)
    return padded[1:-1] * np.uint64(separator + 1) + padded[:-2]


def sort_by_context(keys: Array, depth: int, *, progress: bool = False) -> Array:
    """Sorts positions by the tokens before them, read backwards from the nearest.

    This is the suffix array of the sequence read backwards, by the doubling of Manber and Myers
    ("Suffix arrays", 1993): positions sorted by h tokens are sorted by 2h with the help of the
    ranks h positions earlier. As Larsson and Sadakane ("Faster suffix sorting", 2007) do, only
    positions still tied are sorted again. Ties are not resolved beyond a depth, which bounds the
    time that repetitive sequences take.

    Args:
        keys: ``[size]``, from ``pair_keys``.
        depth: Tokens compared, rounded up to a power of two; at least 2.
        progress: Whether to show a progress bar on standard error.

    Returns:
        ``[size]`` the positions; those with the same tokens before them in rising order.
    """
    kind = np.int32 if len(keys) < np.iinfo(np.int32).max else np.int64
    order = np.argsort(keys, kind="stable").astype(kind)
    ranks = np.empty(len(keys), dtype=kind)
    tied = _rank(ranks, order, np.arange(len(keys), dtype=kind), keys[order])
    rounds = [_SEEN << step for step in range((depth - 1).bit_length() - 1)]
    for seen in tqdm(rounds, "sorting", disable=not progress):
        positions = order[tied]
        # Before the first token everything is alike; any one rank will do, as it ends a context.
        earlier = ranks[np.maximum(positions - seen, 0)]
        keys = ranks[positions].astype(np.int64) * (len(order) + 1) + earlier
        resorted = np.argsort(keys, kind="stable")
        order[tied] = positions[resorted]
        tied = _rank(ranks, order, tied, keys[resorted])
    return order


def _rank(ranks: Array, order: Array, places: Array, keys: Array) -> Array:
    """Gives positions with the same key the place of the first of them as their rank.

    Args:
        ranks: ``[size]``, changed for the positions at these places.
        order: ``[size]``, the positions sorted so far.
        places: Rising places in ``order`` that were sorted just now.
        keys: What they were sorted by, in their new order.

    Returns:
        The places whose positions are still tied.
    """
    is_first = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
    firsts = np.flatnonzero(is_first)
    sizes = np.diff(firsts, append=len(keys))
    ranks[order[places]] = np.repeat(places[firsts], sizes)
    return places[np.repeat(sizes > 1, sizes)]
