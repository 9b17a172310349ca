"""A session whose rows know nothing of each other: what the drafters without a model share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from specrag.decoding.budget import DraftBudget
from specrag.decoding.drafter import DraftSession
from specrag.decoding.tree import DraftTree


class RowDrafter(Protocol):
    """What drafts for one row of a batch."""

    def append(self, token: int) -> None:
        """Takes note of one committed token.

        Args:
            token: The token after all those noted before.
        """

    def propose(self, budget: DraftBudget) -> DraftTree:
        """Proposes a tree below the last committed token, changing nothing.

        Args:
            budget: The largest tree allowed; may allow no node at all.
        """


class RowwiseSession(DraftSession):
    """Asks the drafter of each row in turn.

    Args:
        rows: One for each row of the batch, in order.
    """

    def __init__(self, rows: Iterable[RowDrafter]) -> None:
        self._rows = tuple(rows)

    def propose(self, rows: Sequence[int], budget: Sequence[DraftBudget]) -> list[DraftTree]:
        """Proposes one tree for each named row.

        Args:
            rows: Indices of the rows still running.
            budget: The largest tree allowed for each of them.
        """
        return [self._rows[row].propose(most) for row, most in zip(rows, budget, strict=True)]

    def observe(self, row: int, token_ids: Sequence[int]) -> None:
        """Takes note of committed tokens.

        Args:
            row: Index of the row.
            token_ids: The tokens in order.
        """
        append = self._rows[row].append
        for token in token_ids:
            append(token)
