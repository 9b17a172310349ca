"""What earlier requests left of prompts: keys, values and features, for those that begin alike."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from specrag.errors import ConfigError

_SHORTEST = 16  # a shorter common beginning is not worth the copy


@dataclass(frozen=True, slots=True)
class States:
    """What a target has computed of a sequence of tokens.

    Attributes:
        keys_values: Keys and values ``[heads, length, head_dim]`` of each layer.
        features: What drafters read of it: layer, see ``TargetModel``, to ``[length, hidden]``.
    """

    keys_values: Sequence[tuple[torch.Tensor, torch.Tensor]]
    features: Mapping[int, torch.Tensor] = field(default_factory=dict)

    @property
    def num_bytes(self) -> int:
        """Memory of all tensors."""
        pairs = [tensor for pair in self.keys_values for tensor in pair]
        return sum(t.numel() * t.element_size() for t in (*pairs, *self.features.values()))

    def beginning(self, length: int, feature_layers: Sequence[int]) -> States:
        """Returns views of the first tokens.

        Args:
            length: Number of tokens.
            feature_layers: Which features to take along; all of them must be there.
        """
        return States(
            [(keys[:, :length], values[:, :length]) for keys, values in self.keys_values],
            {layer: self.features[layer][:length] for layer in feature_layers},
        )


class PrefixCache:
    """Token sequences and what was computed of them, bounded in memory; the oldest go first.

    Belongs to one target. What is kept are copies: what a session does with its own cache, and
    whatever is dropped here, never touches anything else.

    Args:
        max_bytes: Most memory for keys, values and features; 0 keeps nothing.
    """

    def __init__(self, max_bytes: int) -> None:
        if max_bytes < 0:
            raise ConfigError(f"a prefix cache needs 0 or more bytes, got {max_bytes}")
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._entries: OrderedDict[tuple[int, ...], States] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def longest(
        self, token_ids: Sequence[int], most: int, feature_layers: Sequence[int] = ()
    ) -> States | None:
        """Returns the states of the longest known beginning of a prompt, None without one.

        Args:
            token_ids: The prompt.
            most: Most tokens to take over.
            feature_layers: Layers whose features are needed; a beginning that was kept without
                one of them is of no use.
        """
        best, length = None, _SHORTEST - 1
        wanted = tuple(token_ids[: max(0, most)])
        for known, states in self._entries.items():
            if not states.features.keys() >= set(feature_layers):
                continue
            common = common_prefix(known, wanted)
            # Of equals the newest, which is the least likely to be dropped soon.
            if common >= max(length, _SHORTEST):
                best, length = known, common
        if best is None:
            return None
        self._entries.move_to_end(best)
        return self._entries[best].beginning(length, feature_layers)

    def add(self, token_ids: Sequence[int], states: States) -> None:
        """Keeps the states of a sequence, and drops the least recently used beyond the bound.

        A sequence takes the place of its beginnings, as far as it has their features. Of the same
        tokens with different features the newer one stays, unless the older one has them all.

        Args:
            token_ids: The tokens.
            states: Copies that nobody else writes to, one position a token.
        """
        tokens, size = tuple(token_ids), states.num_bytes
        if len(tokens) < _SHORTEST or size > self.max_bytes:
            return
        layers, replaced = states.features.keys(), []
        for known, kept in self._entries.items():
            common = common_prefix(known, tokens)
            if common == len(tokens) and kept.features.keys() >= layers:
                self._entries.move_to_end(known)
                return
            if known == tokens or (common == len(known) and layers >= kept.features.keys()):
                replaced.append(known)
        for known in replaced:
            self._drop(known)
        self._entries[tokens] = states
        self.num_bytes += size
        while self.num_bytes > self.max_bytes:
            self._drop(next(iter(self._entries)))

    def _drop(self, tokens: tuple[int, ...]) -> None:
        self.num_bytes -= self._entries.pop(tokens).num_bytes


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
