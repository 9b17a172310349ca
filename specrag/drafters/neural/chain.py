"""Chains of a draft model, token by token, or several at a time with a drafter of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from specrag.decoding.tree import DraftTree, pack
from specrag.decoding.verify import Verification, verify
from specrag.drafters.neural.following_cache import FollowingCache
from specrag.drafters.neural.row import Choice, DraftRow
from specrag.drafters.neural.vocabulary import SharedVocabulary

Guess = Callable[[Sequence["ChainTask"]], list[DraftTree]]
"""Proposes for the draft model itself, one tree of the target's tokens for each task."""


_NO_TOKEN = -1


class ChainTask:
    """One row's chain while it is drafted.

    Args:
        index: Index of the row.
        row: The row.
        ahead: Tokens assumed behind its committed ones.
        draft_ids: The draft model's tokens of the whole text.
        num_tokens: Tokens to draft.
        min_confidence: Ends the chain before the path to a token becomes less likely.
    """

    def __init__(
        self,
        index: int,
        row: DraftRow,
        ahead: Sequence[int],
        draft_ids: Sequence[int],
        num_tokens: int,
        min_confidence: float,
    ) -> None:
        self.index = index
        self.draft_ids = draft_ids
        self._row = row
        self._ahead = tuple(ahead)
        self._num_tokens = num_tokens
        self._min_confidence = min_confidence
        self._tokens: list[int] = []
        self._confidences: list[float] = []
        self._probs: list[torch.Tensor] = []
        self._stopped = False

    @property
    def ahead(self) -> tuple[int, ...]:
        """All tokens assumed so far, the drafted ones included."""
        return (*self._ahead, *self._tokens)

    @property
    def num_left(self) -> int:
        """Tokens still to draft."""
        return 0 if self._stopped else self._num_tokens - len(self._tokens)

    def take(self, tree: DraftTree, logits: torch.Tensor) -> Verification:
        """Drafts what the model says after the last token, along a tree as far as it agrees.

        Args:
            tree: What the model's own drafter proposed, tokens of the target.
            logits: ``[1 + len(tree), vocab]`` of the target's vocabulary, the last token first.
        """

        def choose(node: int, _accepted: tuple[int, ...]) -> int:
            choice = self._row.choose(logits[node + 1], self.ahead)
            self._stopped = self._stopped or choice is None
            if choice is None:
                return _NO_TOKEN
            self._add(choice)
            return choice.token_id

        return verify(tree, choose)

    def tree(self) -> DraftTree:
        """Returns the chain."""
        chain = DraftTree.chain(self._tokens, self._confidences)
        if not self._probs:
            return chain
        return DraftTree(
            chain.token_ids,
            chain.parents,
            chain.confidences,
            draft_probs=torch.stack(self._probs),
        )

    def _add(self, choice: Choice) -> None:
        confidence = (self._confidences[-1] if self._confidences else 1.0) * choice.worth
        # To stop by a drawn token would change the law of what is drawn; see rejection sampling.
        if choice.probs is None and confidence < self._min_confidence:
            self._stopped = True
        if self.num_left <= 0:
            return
        self._tokens.append(choice.token_id)
        self._confidences.append(confidence)
        if choice.probs is not None:
            self._probs.append(choice.probs)


def draft_chains(
    cache: FollowingCache,
    vocabulary: SharedVocabulary,
    tasks: Mapping[int, ChainTask],
    guess: Guess | None = None,
) -> None:
    """Drafts a chain for each task, all rows together, one pass of the model a step.

    Args:
        cache: The draft model's.
        vocabulary: What it has in common with the target.
        tasks: By row; each must still have something to draft.
        guess: Drafts for the draft model, so that a pass may give several tokens.
    """
    missing = cache.follow({row: task.draft_ids for row, task in tasks.items()})
    batch = [tasks[row] for row in cache.rows]
    while any(task.num_left for task in batch):
        trees = _guesses(batch, guess, vocabulary)
        drafts = [
            _behind(tokens[1:], vocabulary.draft_ids(tree.token_ids), tree)
            for tokens, tree in zip(missing, trees, strict=True)
        ]
        output = cache.forward(pack([tokens[0] for tokens in missing], drafts))
        paths: list[list[int]] = []
        kept: list[list[int]] = []
        for slot, task in enumerate(batch):
            first = len(missing[slot]) - 1
            if not task.num_left:  # rides along, so that the batch stays as it is
                paths.append([])
                kept.append([])
                continue
            tree = trees[slot]
            logits = vocabulary.target_logits(output.logits[slot, first : first + 1 + len(tree)])
            found = task.take(tree, logits)
            paths.append([*range(first + 1), *(first + 1 + node for node in found.path)])
            kept.append(missing[slot] + vocabulary.draft_ids(found.accepted))
            # Once it is done, a row rides along as narrow as can be.
            more = task.num_left > 0
            missing[slot] = vocabulary.draft_ids([found.next_token]) if more else kept[-1][-1:]
        cache.commit(paths, kept)


def _guesses(
    batch: Sequence[ChainTask], guess: Guess | None, vocabulary: SharedVocabulary
) -> list[DraftTree]:
    trees = {task.index: DraftTree() for task in batch}
    # The last token needs no guess: the model says it itself.
    asked = [task for task in batch if task.num_left > 1]
    if guess is not None and asked:
        for task, tree in zip(asked, guess(asked), strict=True):
            trees[task.index] = vocabulary.pruned(tree)
    return [trees[task.index] for task in batch]


def _behind(chain: Sequence[int], tokens: Sequence[int], tree: DraftTree) -> DraftTree:
    """The tree, in the draft model's tokens, below a chain."""
    parents = [parent + len(chain) for parent in tree.parents]
    return DraftTree((*chain, *tokens), (*range(-1, len(chain) - 1), *parents))
