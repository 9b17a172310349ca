"""Keys and values of earlier requests, for prompts that begin as they did."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch

from specrag.errors import ConfigError

States = Sequence[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values ``[heads, length, head_dim]`` of each layer."""

_SHORTEST = 16  # a shorter common beginning is not worth the copy


class PrefixCache:
    """Token sequences with their keys and values, within a bound of memory; the oldest go first.

    Belongs to one target. What is kept are copies: what a session does with its own cache, and
    whatever is dropped here, never touches anything else.

    Args:
        max_bytes: Most memory for keys and values; 0 keeps nothing.
    """

    def __init__(self, max_bytes: int) -> None:
        if max_bytes < 0:
            raise ConfigError(f"a prefix cache needs 0 or more bytes, got {max_bytes}")
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._entries: OrderedDict[tuple[int, ...], States] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def longest(self, token_ids: Sequence[int], most: int) -> States | None:
        """Returns the states of the longest known beginning of a prompt, None without one.

        Args:
            token_ids: The prompt.
            most: Most tokens to take over.
        """
        best, length = None, _SHORTEST - 1
        wanted = tuple(token_ids[: max(0, most)])
        for known in self._entries:
            common = common_prefix(known, wanted)
            # Of equals the newest, which is the least likely to be dropped soon.
            if common >= max(length, _SHORTEST):
                best, length = known, common
        if best is None:
            return None
        self._entries.move_to_end(best)
        return [(keys[:, :length], values[:, :length]) for keys, values in self._entries[best]]

    def add(self, token_ids: Sequence[int], states: States) -> None:
        """Keeps the states of a sequence, and drops the least recently used beyond the bound.

        Args:
            token_ids: The tokens.
            states: Copies that nobody else writes to, one position a token.
        """
        tokens = tuple(token_ids)
        size = _size(states)
        if len(tokens) < _SHORTEST or size > self.max_bytes:
            return
        for known in list(self._entries):
            common = common_prefix(known, tokens)
            if common == len(tokens):
                self._entries.move_to_end(known)
                return
            if common == len(known):
                self._drop(known)
        self._entries[tokens] = states
        self.num_bytes += size
        while self.num_bytes > self.max_bytes:
            self._drop(next(iter(self._entries)))

    def _drop(self, tokens: tuple[int, ...]) -> None:
        self.num_bytes -= _size(self._entries.pop(tokens))


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Returns how many tokens two sequences have in common at their beginning.

    Args:
        first: Tokens.
        second: Tokens.
    """
    most = min(len(first), len(second))
    low = 0
    # Halving compares slices, which is far faster than a loop over tokens.
    while low < most:
        middle = (low + most + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            most = middle - 1
    return low


def _size(states: States) -> int:
    return sum(tensor.numel() * tensor.element_size() for pair in states for tensor in pair)
