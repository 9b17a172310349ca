"""A session whose rows know nothing of each other: what the drafters without a model share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import torch

from specrag.decoding.budget import DraftBudget
from specrag.decoding.drafter import DraftContext, ForesightedSession
from specrag.decoding.tree import DraftTree


class RowDrafter(Protocol):
    """What drafts for one row of a batch."""

    def append(self, token: int) -> None:
        """Takes note of one committed token.

        Args:
            token: The token after all those noted before.
        """

    def propose_after(self, budget: DraftBudget, ahead: Sequence[int]) -> DraftTree:
        """Proposes a tree below the last token, changing nothing.

        Args:
            budget: The largest tree allowed; may allow no node at all.
            ahead: Tokens to assume behind the last committed one; mostly none.
        """


class RowwiseSession(ForesightedSession):
    """Asks the drafter of each row in turn.

    Args:
        make_row: Makes the drafter of one row.
        contexts: One for each row of the batch, in order.
    """

    def __init__(
        self, make_row: Callable[[DraftContext], RowDrafter], contexts: Iterable[DraftContext]
    ) -> None:
        self._make_row = make_row
        self._rows = [make_row(context) for context in contexts]

    def propose_after(
        self,
        rows: Sequence[int],
        budget: Sequence[DraftBudget],
        ahead: Sequence[Sequence[int]],
    ) -> list[DraftTree]:
        """Proposes as if further tokens had been committed.

        Args:
            rows: Indices of running rows.
            budget: The largest tree allowed for each of them.
            ahead: Tokens assumed behind the last committed one, for each of them.
        """
        asked = zip(rows, budget, ahead, strict=True)
        return [self._rows[row].propose_after(most, assumed) for row, most, assumed in asked]

    def observe(
        self,
        row: int,
        token_ids: Sequence[int],
        features: Mapping[int, torch.Tensor] | None = None,
    ) -> None:
        """Takes note of committed tokens.

        Args:
            row: Index of the row.
            token_ids: The tokens in order.
            features: Are not needed.
        """
        append = self._rows[row].append
        for token in token_ids:
            append(token)

    def join(self, context: DraftContext) -> int:
        """Adds a row.

        Args:
            context: Of the new row.

        Returns:
            Its index.
        """
        self._rows.append(self._make_row(context))
        return len(self._rows) - 1
