"""No drafting: plain decoding under the name that users type to switch speculation off."""

from __future__ import annotations

from collections.abc import Sequence

from specrag.decoding.budget import DraftBudget
from specrag.decoding.drafter import DraftContext, Drafter
from specrag.decoding.tree import DraftTree
from specrag.drafters.rows import RowwiseSession


class NoDrafter(Drafter):
    """Proposes nothing, so that every pass of the target yields one token."""

    name = "none"

    def open(self, contexts: Sequence[DraftContext]) -> RowwiseSession:
        """Starts a session that stays silent.

        Args:
            contexts: One for each row.
        """
        return RowwiseSession(lambda _: _SilentRow(), contexts)


class _SilentRow:
    def append(self, token: int) -> None:
        pass

    def propose_after(self, budget: DraftBudget, ahead: Sequence[int]) -> DraftTree:
        return DraftTree()
