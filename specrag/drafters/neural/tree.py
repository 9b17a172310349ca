"""Trees of a draft model, level by level, all rows of a batch together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from specrag.decoding.tree import ROOT, DraftTree, pack
from specrag.drafters.neural.following_cache import FollowingCache
from specrag.drafters.neural.row import DraftRow
from specrag.drafters.neural.vocabulary import SharedVocabulary
from specrag.drafters.trees.growing_tree import GrowingTree
from specrag.models.target import TreePass


@dataclass(slots=True)
class TreeTask:
    """One row's tree while it is drafted.

    Attributes:
        row: The row.
        ahead: Tokens assumed behind its committed ones.
        draft_ids: The draft model's tokens of the whole text.
        growing: The tree.
        slots: Where the evaluated candidates are pending.
    """

    row: DraftRow
    ahead: tuple[int, ...]
    draft_ids: Sequence[int]
    growing: GrowingTree
    slots: dict[int, int] = field(default_factory=dict)

    def grow(self, logits: torch.Tensor) -> None:
        """Scores what follows the frontier.

        Args:
            logits: ``[frontier, vocab]`` of the target's vocabulary.
        """
        nodes = self.growing.frontier
        aheads = [(*self.ahead, *self.growing.tokens_to(node)) for node in nodes]
        self.growing.grow(self.row.log_probs(logits, aheads))

    def likeliest_path(self) -> list[int]:
        """Returns the evaluated candidates on the way along the likeliest children."""
        growing, node = self.growing, ROOT
        path: list[int] = []
        while True:
            below = [n for n in self.slots if growing.candidates[n].parent == node]
            if not below:
                return path
            node = min(below, key=growing.strict_order)
            path.append(node)


def draft_trees(
    cache: FollowingCache, vocabulary: SharedVocabulary, tasks: Mapping[int, TreeTask]
) -> None:
    """Fills the tree of each task, one pass of the model a level.

    Args:
        cache: The draft model's. Of each tree, the likeliest path stays in it.
        vocabulary: What the draft model has in common with the target.
        tasks: By row.
    """
    missing = cache.follow({row: task.draft_ids for row, task in tasks.items()})
    batch = [tasks[row] for row in cache.rows]
    chains = [DraftTree.chain(tokens[1:]) for tokens in missing]
    logits = cache.forward(pack([tokens[0] for tokens in missing], chains)).logits
    cache.commit([range(len(tokens)) for tokens in missing], missing)
    for slot, (task, tokens) in enumerate(zip(batch, missing, strict=True)):
        task.grow(vocabulary.target_logits(logits[slot, len(tokens) - 1].unsqueeze(0)))
    kept = 0
    while any(task.growing.frontier for task in batch):
        level = _level(batch, vocabulary, kept)
        logits = cache.forward(level).logits
        for slot, task in enumerate(batch):
            if size := len(task.growing.frontier):
                task.grow(vocabulary.target_logits(logits[slot, :size]))
        kept += level.token_ids.shape[1]
    paths = [task.likeliest_path() for task in batch]
    pairs = list(zip(batch, paths, strict=True))
    tokens_of = [[t.growing.candidates[node].token for node in path] for t, path in pairs]
    cache.commit(
        [[task.slots[node] for node in path] for task, path in pairs],
        [vocabulary.draft_ids(tokens) for tokens in tokens_of],
    )


def _level(batch: Sequence[TreeTask], vocabulary: SharedVocabulary, kept: int) -> TreePass:
    """Lays the frontiers side by side behind the ``kept`` pending nodes, and notes their slots."""
    width = max(len(task.growing.frontier) for task in batch)
    token_ids = torch.zeros(len(batch), width, dtype=torch.long)
    depths = torch.zeros(len(batch), width, dtype=torch.long)
    visible = torch.zeros(len(batch), width, kept + width, dtype=torch.bool)
    own = torch.arange(width)
    visible[:, own, kept + own] = True  # padding sees itself too: no row of the mask is empty
    for row, task in enumerate(batch):
        candidates = [task.growing.candidates[node] for node in task.growing.frontier]
        for place, node in enumerate(task.growing.frontier):
            ancestors = task.growing.path(node)[:-1]
            visible[row, place, [task.slots[above] for above in ancestors]] = True
            task.slots[node] = kept + place
        size = len(candidates)
        tokens = vocabulary.draft_ids([candidate.token for candidate in candidates])
        token_ids[row, :size] = torch.tensor(tokens, dtype=torch.long)
        # The root is committed already, so the first level continues the cache directly.
        depths[row, :size] = torch.tensor([c.depth - 1 for c in candidates], dtype=torch.long)
    return TreePass(token_ids, depths, visible)
