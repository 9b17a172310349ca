"""HeadRow: one row beside a draft head: its text, and the target's states of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from specrag.decoding.drafter import DraftContext
from specrag.drafters.neural.row import DraftRow, PlainText

Features = Mapping[int, torch.Tensor]


class HeadRow:
    """Keeps the target's states until the head has read them, each with the token that followed.

    Args:
        context: The row's prompt and sampler.

    Attributes:
        chooser: Chooses tokens as the row does.
        num_read: Positions that the head has read.
        read: What the head's LM head reads behind the last position, ``[hidden]``.
        state: The head's own state there, ``[hidden]``.
    """

    def __init__(self, context: DraftContext) -> None:
        self._text = PlainText()
        self.chooser = DraftRow(context, self._text)
        self._unread: list[Features] = []
        self.num_read = 0
        self.read: torch.Tensor | None = None
        self.state: torch.Tensor | None = None

    @property
    def num_unread(self) -> int:
        """Positions that the head has still to read."""
        return sum(_length(part) for part in self._unread)

    @property
    def num_known(self) -> int:
        """Positions whose states are known."""
        return self.num_read + self.num_unread

    def observe(self, token_ids: Sequence[int], features: Features) -> None:
        """Takes note of committed tokens and the states that said them.

        Args:
            token_ids: The tokens in order.
            features: Layer to ``[positions, hidden]``; the last positions said the tokens.
        """
        self.chooser.observe(token_ids)
        self._unread.append(features)
        expected = len(self._text.token_ids) - 1
        assert self.num_known == expected, f"{self.num_known} states for {expected} positions"

    def peek(self, most: int, layers: Sequence[int]) -> tuple[list[torch.Tensor], list[int]]:
        """Returns the next states to read and the token after each.

        Args:
            most: Most positions.
            layers: Of the target, in the wanted order.

        Returns:
            ``[positions, hidden]`` for each layer, and as many tokens.
        """
        joined = [torch.cat([part[layer] for part in self._unread])[:most] for layer in layers]
        count, first = len(joined[0]), self.num_read + 1
        return joined, self._text.token_ids[first : first + count]

    def has_read(self, count: int, read: torch.Tensor, state: torch.Tensor) -> None:
        """Takes note of what the head said behind some more positions.

        Args:
            count: Number of positions.
            read: For the LM head, ``[hidden]``.
            state: For the next draft, ``[hidden]``.
        """
        self.num_read += count
        self.read, self.state = read, state
        while self._unread and count >= _length(self._unread[0]):
            count -= _length(self._unread.pop(0))
        if count:
            rest = {layer: states[count:] for layer, states in self._unread[0].items()}
            self._unread[0] = rest


def _length(features: Features) -> int:
    return len(next(iter(features.values())))
