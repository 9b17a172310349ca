"""MedusaSession: Medusa heads beside one batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from specrag.decoding.budget import DraftBudget
from specrag.decoding.drafter import DraftContext, ForesightedSession
from specrag.decoding.tree import DraftTree
from specrag.drafters.heads.medusa import MedusaHeads
from specrag.drafters.heads.projection import BatchProjection, Projection
from specrag.drafters.neural.row import DraftRow, PlainText, precise
from specrag.drafters.trees.growing_tree import GrowingTree, best_tokens
from specrag.models.target import FINAL_NORM

NewTree = Callable[[DraftBudget, int], GrowingTree]
"""Begins a tree for a budget, whose first level is drafted by the head of that number."""


class MedusaSession(ForesightedSession):
    """Holds the newest state of each row, and lets all heads read it when a draft is asked for.

    What a head says does not depend on what the heads before it said, so a tree of any form costs
    one pass of the heads.

    Args:
        name: What stands as the origin of each node.
        heads: The heads.
        projections: One that all heads read, or one for each head.
        new_tree: Begins the trees.
        contexts: One for each row.
    """

    def __init__(
        self,
        name: str,
        heads: MedusaHeads,
        projections: Sequence[Projection],
        new_tree: NewTree,
        contexts: Sequence[DraftContext],
    ) -> None:
        self._name = name
        self._heads = heads
        self._new_tree = new_tree
        self._rows: list[DraftRow] = []
        self._states: list[torch.Tensor | None] = []
        self._projections: list[BatchProjection] = [p.open(()) for p in projections]
        for context in contexts:
            self.join(context)

    @torch.inference_mode()
    def propose_after(
        self,
        rows: Sequence[int],
        budget: Sequence[DraftBudget],
        ahead: Sequence[Sequence[int]],
    ) -> list[DraftTree]:
        """Proposes as if further tokens had been committed: they take the place of the first heads.

        Args:
            rows: Indices of running rows.
            budget: The largest tree allowed for each of them.
            ahead: Tokens assumed behind the last committed one, for each of them.
        """
        possible = [
            self._possible(most, len(assumed)) for most, assumed in zip(budget, ahead, strict=True)
        ]
        drafting = [
            slot
            for slot, (row, most) in enumerate(zip(rows, possible, strict=True))
            if self._states[row] is not None and most.num_speculative_tokens
        ]
        drafted = {slot: DraftTree() for slot in range(len(rows))}
        if drafting:
            count = max(len(ahead[slot]) + possible[slot].max_depth for slot in drafting)
            projection, logits = self._read([rows[slot] for slot in drafting], count)
            for place, slot in enumerate(drafting):
                first, most = len(ahead[slot]), possible[slot]
                draft = _Draft(
                    self._rows[rows[slot]],
                    projection,
                    logits[place, first : first + most.max_depth],
                    tuple(ahead[slot]),
                )
                drafted[slot] = self._drafted(rows[slot], draft, most)
        return [self._signed(drafted[slot]) for slot in range(len(rows))]

    def observe(
        self,
        row: int,
        token_ids: Sequence[int],
        features: Mapping[int, torch.Tensor] | None = None,
    ) -> None:
        """Takes note of committed tokens, and keeps the state before the last of them.

        Args:
            row: Index of the row.
            token_ids: The tokens in order.
            features: The states behind the target's final norm.
        """
        if not token_ids:
            return
        assert features is not None, "Medusa heads need the target's states with each token"
        # A copy: a view would hold on to the states of the whole prompt.
        self._states[row] = features[FINAL_NORM][-1].clone()
        self._rows[row].observe(token_ids)

    def join(self, context: DraftContext) -> int:
        """Adds a row to a running batch.

        Args:
            context: Of the new row.

        Returns:
            Its index.
        """
        for projection in self._projections:
            projection.join(context)
        self._rows.append(DraftRow(context, PlainText()))
        self._states.append(None)
        return len(self._rows) - 1

    def close(self) -> None:
        """Releases the states."""
        self._states = [None] * len(self._states)

    def _possible(self, budget: DraftBudget, num_ahead: int) -> DraftBudget:
        """The budget, no deeper than there are heads left."""
        depth = min(budget.max_depth, budget.num_speculative_tokens)
        depth = min(depth, self._heads.num_heads - num_ahead)
        return replace(budget.within(depth + 1), branching=max(1, budget.branching))

    def _read(self, rows: Sequence[int], count: int) -> tuple[Projection, torch.Tensor]:
        """What the first heads say of each row, ``[rows, count, draft vocab]``."""
        states = [state for row in rows if (state := self._states[row]) is not None]
        outputs = self._heads(torch.stack(states), count)
        found = [projection.at(rows) for projection in self._projections]
        if len(found) == 1:
            return found[0], found[0].logits(outputs)
        # Heads with LM heads of their own; the tokens that these name are the same.
        pairs = zip(found, outputs.unbind(1), strict=False)
        return found[0], torch.stack([each.logits(states) for each, states in pairs], dim=1)

    def _drafted(self, row: int, draft: _Draft, budget: DraftBudget) -> DraftTree:
        if self._rows[row].rejection:
            return draft.chain()
        growing = self._new_tree(budget, len(draft.ahead))
        if self._rows[row].is_plain:
            return draft.plain_tree(growing, budget.branching)
        return draft.tree(growing)

    def _signed(self, tree: DraftTree) -> DraftTree:
        return replace(tree, origins=((self._name,),) * len(tree))


class _Draft:
    """One row's draft from what its heads said.

    Args:
        row: The row.
        projection: Which tokens the heads name.
        logits: ``[levels, draft vocab]`` of the heads that draft.
        ahead: Tokens assumed behind the committed ones.
    """

    def __init__(
        self,
        row: DraftRow,
        projection: Projection,
        logits: torch.Tensor,
        ahead: tuple[int, ...],
    ) -> None:
        self.ahead = ahead
        self._row = row
        self._projection = projection
        self._logits = logits

    def chain(self) -> DraftTree:
        """Draws a token of each level; with its law, where rejection sampling verifies it."""
        tokens: list[int] = []
        confidences: list[float] = []
        probs: list[torch.Tensor] = []
        for logits in self._projection.widened(self._logits):
            choice = self._row.choose(logits, (*self.ahead, *tokens))
            if choice is None or choice.probs is None:
                break
            tokens.append(choice.token_id)
            confidences.append((confidences[-1] if confidences else 1.0) * choice.worth)
            probs.append(choice.probs)
        if not tokens:
            return DraftTree()
        chain = DraftTree.chain(tokens, confidences)
        return replace(chain, draft_probs=torch.stack(probs))

    def tree(self, growing: GrowingTree) -> DraftTree:
        """Fills a tree as the row chooses: with its processors, and its noise at each place.

        Args:
            growing: Empty yet, no deeper than there are levels.
        """
        levels = self._projection.widened(self._logits)
        for logits in levels:
            nodes = growing.frontier
            if not nodes:
                break
            aheads = [(*self.ahead, *growing.tokens_to(node)) for node in nodes]
            rows = logits.expand(len(nodes), -1)
            growing.grow(self._row.log_probs(rows, aheads))
        return growing.tree()

    def plain_tree(self, growing: GrowingTree, branching: int) -> DraftTree:
        """Fills a tree for a row that takes the likeliest token: of each level a few will do.

        Args:
            growing: Empty yet, no deeper than there are levels.
            branching: Most children of a node.
        """
        log_probs = torch.log_softmax(precise(self._logits), dim=-1)
        for level in log_probs:
            nodes = growing.frontier
            if not nodes:
                break
            # Every node of a level has the same children: they are looked for once.
            best = best_tokens(level, branching)
            steps = level[best].expand(len(nodes), -1)
            growing.grow(steps, self._projection.token_ids[best])
        return growing.tree()
