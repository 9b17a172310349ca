"""HeadSession: a draft head with states of its own, such as EAGLE's, beside one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from specrag.decoding.budget import DraftBudget
from specrag.decoding.drafter import DraftContext, ForesightedSession
from specrag.decoding.tree import ROOT, DraftTree
from specrag.drafters.heads.projection import BatchProjection, Projection
from specrag.drafters.neural.head_cache import HeadCache, Node
from specrag.drafters.neural.head_row import Features, HeadRow
from specrag.drafters.neural.head_task import DrawnChain, HeadTask
from specrag.drafters.trees.beginning import begin_tree
from specrag.drafters.trees.growing_tree import GrowingTree
from specrag.drafters.trees.tree_shape import TreeShape
from specrag.errors import ConfigError


@dataclass(frozen=True, slots=True)
class HeadOptions:
    """How a head drafts.

    Attributes:
        shape: The form of its trees; None lets them follow the head's confidence.
        min_confidence: Least probability of a path worth drafting; not used where rejection
            sampling verifies, which must not stop by what was drawn.
    """

    shape: TreeShape | None = None
    min_confidence: float = 0.02

    def __post_init__(self) -> None:
        if not 0 <= self.min_confidence <= 1:
            raise ConfigError(f"min_confidence must be from 0 to 1, got {self.min_confidence}")


class HeadSession(ForesightedSession):
    """Drafts chains and trees for the rows of one batch.

    Args:
        name: What stands as the origin of each node.
        cache: Of the head.
        projection: Names the tokens.
        options: How it drafts.
        contexts: One for each row.
    """

    def __init__(
        self,
        name: str,
        cache: HeadCache,
        projection: BatchProjection,
        options: HeadOptions,
        contexts: Sequence[DraftContext],
    ) -> None:
        self._name = name
        self.cache = cache
        self._projection = projection
        self._options = options
        self._rows = [HeadRow(context) for context in contexts]

    @torch.inference_mode()
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
        tasks = {
            row: HeadTask(self._rows[row], tuple(assumed), self._growing(row, most))
            for row, most, assumed in zip(rows, budget, ahead, strict=True)
            if most.num_speculative_tokens and most.max_depth and self._rows[row].num_known
        }
        if tasks:
            self.cache.catch_up({row: task.row for row, task in tasks.items()})
            self._draft([tasks[row] for row in self.cache.rows])
        drafted = {row: task.growing.tree() for row, task in tasks.items()}
        return [self._signed(drafted.get(row, DraftTree())) for row in rows]

    def observe(self, row: int, token_ids: Sequence[int], features: Features | None = None) -> None:
        """Takes note of committed tokens and of the target's states; the head reads them later.

        Args:
            row: Index of the row.
            token_ids: The tokens in order.
            features: The states that said them.
        """
        assert features is not None, f"{self._name} drafts from the target's states"
        self._rows[row].observe(token_ids, features)

    def join(self, context: DraftContext) -> int:
        """Adds a row to a running batch.

        Args:
            context: Of the new row.

        Returns:
            Its index.
        """
        self._projection.join(context)
        self._rows.append(HeadRow(context))
        return len(self._rows) - 1

    def close(self) -> None:
        """Releases the cache."""
        self.cache.reset()

    def _growing(self, row: int, budget: DraftBudget) -> GrowingTree | DrawnChain:
        if self._rows[row].chooser.rejection:
            return DrawnChain(min(budget.num_speculative_tokens, budget.max_depth))
        return begin_tree(budget, self._options.shape, self._options.min_confidence)

    def _draft(self, batch: Sequence[HeadTask]) -> None:
        """Fills the drafts of a batch, one pass of the head a level."""
        projection = self._projection.at(self.cache.rows)
        reads, kept = self._after_ahead(batch)
        self._grow(batch, reads.unsqueeze(1), projection, first=True)
        while any(task.growing.frontier for task in batch):
            nodes = [_nodes(task) for task in batch]
            read, states = self.cache.drafted(nodes, kept)
            for slot, task in enumerate(batch):
                for place, node in enumerate(task.growing.frontier):
                    task.slots[node] = kept + place
                    task.states[node] = states[slot, place]
            self._grow(batch, read, projection)
            kept += read.shape[1]

    def _after_ahead(self, batch: Sequence[HeadTask]) -> tuple[torch.Tensor, int]:
        """Reads assumed tokens, each behind the head's own state of the one before.

        Returns:
            What the LM head reads behind the last of them, ``[batch, hidden]``, and the number of
            nodes that are pending then.
        """
        reads = [task.row.read for task in batch]
        for task in batch:
            assert task.row.state is not None, "the head has read something of each row"
            task.states[ROOT] = task.row.state
        longest = max(len(task.ahead) for task in batch)
        for depth in range(longest):
            nodes: list[list[Node]] = [
                [(task.ahead[depth], task.states[ROOT], depth, range(depth))]
                if depth < len(task.ahead)
                else []
                for task in batch
            ]
            read, states = self.cache.drafted(nodes, depth)
            for slot, task in enumerate(batch):
                if depth < len(task.ahead):
                    reads[slot], task.states[ROOT] = read[slot, 0], states[slot, 0]
        return torch.stack([read for read in reads if read is not None]), longest

    def _grow(
        self,
        batch: Sequence[HeadTask],
        read: torch.Tensor,
        projection: Projection,
        *,
        first: bool = False,
    ) -> None:
        logits = projection.logits(read)
        for slot, task in enumerate(batch):
            size = 1 if first else len(task.growing.frontier)
            if size:
                task.grow(logits[slot, :size], projection)

    def _signed(self, tree: DraftTree) -> DraftTree:
        return replace(tree, origins=((self._name,),) * len(tree))


def _nodes(task: HeadTask) -> list[Node]:
    frontier = zip(task.growing.frontier, task.level(), strict=True)
    return [(token, state, depth, task.visible(node)) for node, (token, state, depth) in frontier]
