"""DraftModelSession: a draft model beside one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from specrag.decoding.budget import DraftBudget
from specrag.decoding.drafter import DraftContext, DraftSession, ForesightedSession
from specrag.decoding.tree import DraftTree
from specrag.drafters.neural.chain import ChainTask, draft_chains
from specrag.drafters.neural.following_cache import FollowingCache
from specrag.drafters.neural.pair import DraftPair
from specrag.drafters.neural.row import DraftRow
from specrag.drafters.neural.transcript import Transcript
from specrag.drafters.neural.tree import TreeTask, draft_trees
from specrag.drafters.trees.beginning import begin_tree
from specrag.drafters.trees.growing_tree import GrowingTree
from specrag.drafters.trees.tree_shape import TreeShape
from specrag.errors import ConfigError


@dataclass(frozen=True, slots=True)
class DraftOptions:
    """How a model drafts.

    Attributes:
        shape: The form of its trees; None lets them follow the model's confidence.
        min_confidence: Least probability of a path worth drafting; not used where rejection
            sampling verifies, which must not stop by what was drawn.
        inner_budget: Most that a drafter of its own may propose to it for one pass.
    """

    shape: TreeShape | None = None
    min_confidence: float = 0.05
    inner_budget: DraftBudget = DraftBudget(6, 6, 2)

    def __post_init__(self) -> None:
        if not 0 <= self.min_confidence <= 1:
            raise ConfigError(f"min_confidence must be from 0 to 1, got {self.min_confidence}")


class DraftModelSession(ForesightedSession):
    """The draft model beside one batch.

    Args:
        name: What stands as the origin of each node.
        pair: The draft model and what it has in common with the target.
        options: How it drafts.
        inner: The session of its own drafter.
        contexts: One for each row.
    """

    def __init__(
        self,
        name: str,
        pair: DraftPair,
        options: DraftOptions,
        inner: DraftSession | None,
        contexts: Sequence[DraftContext],
    ) -> None:
        self._name = name
        self._pair = pair
        self._options = options
        self._inner = inner
        self.cache = FollowingCache(pair.model)
        self._rows: list[DraftRow] = []
        self._transcripts: list[Transcript] = []
        for context in contexts:
            self._add_row(context)

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
        chains: dict[int, ChainTask] = {}
        trees: dict[int, TreeTask] = {}
        for row, most, assumed in zip(rows, budget, ahead, strict=True):
            most = self._possible(most)
            text = self._text(row, assumed) if most.num_speculative_tokens else None
            if not text:
                continue
            if most.branching == 1 or self._rows[row].rejection or self._inner is not None:
                chains[row] = self._chain(row, most, assumed, text)
            else:
                growing = self._growing(most)
                trees[row] = TreeTask(self._rows[row], tuple(assumed), text, growing)
        try:
            if chains:
                guess = self._guess if self._inner is not None else None
                draft_chains(self.cache, self._pair.vocabulary, chains, guess)
            if trees:
                draft_trees(self.cache, self._pair.vocabulary, trees)
        except BaseException:
            self.cache.reset()  # whatever state it is in: it is computed again
            raise
        drafted = {row: task.tree() for row, task in chains.items()}
        drafted.update((row, task.growing.tree()) for row, task in trees.items())
        return [self._signed(drafted.get(row, DraftTree())) for row in rows]

    def observe(
        self,
        row: int,
        token_ids: Sequence[int],
        features: Mapping[int, torch.Tensor] | None = None,
    ) -> None:
        """Takes note of committed tokens; the model reads them when next asked.

        Args:
            row: Index of the row.
            token_ids: The tokens in order.
            features: The target's states, for a drafter of its own that needs them.
        """
        self._rows[row].observe(token_ids)
        if self._inner is not None:
            self._inner.observe(row, token_ids, features)

    def join(self, context: DraftContext) -> int:
        """Adds a row to a running batch.

        Args:
            context: Of the new row.

        Returns:
            Its index.
        """
        if self._inner is not None:
            self._inner.join(context)
        return self._add_row(context)

    def close(self) -> None:
        """Releases the cache."""
        self.cache.reset()
        if self._inner is not None:
            self._inner.close()

    def _add_row(self, context: DraftContext) -> int:
        transcript = Transcript(self._pair.translator, self._pair.vocabulary)
        self._transcripts.append(transcript)
        self._rows.append(DraftRow(context, transcript))
        return len(self._rows) - 1

    def _possible(self, budget: DraftBudget) -> DraftBudget:
        """The budget, no deeper than there is always room in the model's context."""
        depth = min(budget.max_depth, budget.num_speculative_tokens, self._reserve)
        return replace(budget.within(depth + 1), branching=max(1, budget.branching))

    @property
    def _reserve(self) -> int:
        """Slots of the model's context that are kept free for drafts."""
        return max(1, self._pair.model.max_context // 4)

    def _text(self, row: int, ahead: Sequence[int]) -> list[int] | None:
        """The end of a row's text that the model reads, in its tokens."""
        transcript = self._transcripts[row]
        tokens = (transcript.after(ahead) if ahead else transcript).draft_ids()
        if tokens is None:
            return None
        # Where the window starts follows from the length alone, so a proposal depends on nothing
        # but the text; and it moves in steps, so that what was computed mostly stays right.
        excess = len(tokens) + self._reserve - self._pair.model.max_context
        return tokens[self._reserve * max(0, -(-excess // self._reserve)) :]

    def _chain(
        self, row: int, budget: DraftBudget, ahead: Sequence[int], text: Sequence[int]
    ) -> ChainTask:
        number, least = budget.max_depth, self._options.min_confidence
        return ChainTask(row, self._rows[row], ahead, text, number, least)

    def _growing(self, budget: DraftBudget) -> GrowingTree:
        return begin_tree(budget, self._options.shape, self._options.min_confidence)

    def _guess(self, tasks: Sequence[ChainTask]) -> list[DraftTree]:
        assert self._inner is not None, "there is no drafter of its own"
        budgets = [self._options.inner_budget.within(task.num_left) for task in tasks]
        rows, ahead = [task.index for task in tasks], [task.ahead for task in tasks]
        trees = self._inner.propose_after(rows, budgets, ahead)
        return [
            tree.truncated(budget.num_speculative_tokens, budget.max_depth)
            for tree, budget in zip(trees, budgets, strict=True)
        ]

    def _signed(self, tree: DraftTree) -> DraftTree:
        return replace(tree, origins=((self._name,),) * len(tree))
