"""GrowingTree: a draft tree that a model fills level by level, and the order of its nodes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch

from specrag.decoding.tree import ROOT, DraftTree


class Candidate(NamedTuple):
    """A node that was scored; its index among the candidates is its age.

    Attributes:
        score: Natural log-probability of the path down to it.
        depth: 1 for a child of the root.
        rank: 0 for the likeliest child of its parent.
        token: Its token.
        parent: Index of its parent among the candidates, or ``ROOT``.
    """

    score: float
    depth: int
    rank: int
    token: int
    parent: int


class GrowingTree(ABC):
    """Scored candidates, of which some are evaluated level by level and some are drafted at last.

    Use: score the root with ``grow``; while there is a ``frontier``, evaluate its nodes in one
    pass of the draft model and ``grow`` again; then take the ``tree``.

    Args:
        max_depth: Deepest level.
        min_score: Candidates with a lower log-probability are dropped.
    """

    def __init__(self, max_depth: int, min_score: float = -math.inf) -> None:
        self._max_depth = max_depth
        self._min_score = min_score
        self.candidates: list[Candidate] = []
        self.frontier: list[int] = [ROOT]

    def path(self, candidate: int) -> tuple[int, ...]:
        """Returns the candidates from the root's child down to one.

        Args:
            candidate: Index of a candidate, or ``ROOT`` for the empty path.
        """
        path: list[int] = []
        while candidate != ROOT:
            path.append(candidate)
            candidate = self.candidates[candidate].parent
        return tuple(reversed(path))

    def tokens_to(self, candidate: int) -> tuple[int, ...]:
        """Returns the tokens of the path down to a candidate.

        Args:
            candidate: Index of a candidate, or ``ROOT``.
        """
        return tuple(self.candidates[node].token for node in self.path(candidate))

    def grow(self, log_probs: torch.Tensor, token_ids: torch.Tensor | None = None) -> None:
        """Scores the children of the frontier, and chooses the next one among them.

        Args:
            log_probs: ``[frontier, vocab]`` log-probabilities of what follows each node; minus
                infinity excludes a token.
            token_ids: ``[vocab]`` the token of each place; None where the place is the token.
        """
        first = len(self.candidates)
        for slot, parent in enumerate(self.frontier):
            self._add_children(parent, log_probs[slot], token_ids)
        depth = self._depth(self.frontier[0]) + 1
        level = range(first, len(self.candidates))
        self.frontier = self._next_frontier(level) if depth < self._max_depth else []

    def tree(self) -> DraftTree:
        """Returns the drafted nodes, the likeliest first, with their probabilities."""
        drafted = sorted(self._drafted(), key=self.strict_order)
        place = {ROOT: ROOT, **{node: index for index, node in enumerate(drafted)}}
        return DraftTree(
            tuple(self.candidates[node].token for node in drafted),
            tuple(place[self.candidates[node].parent] for node in drafted),
            tuple(math.exp(self.candidates[node].score) for node in drafted),
        )

    def strict_order(self, candidate: int) -> tuple[float, int, int]:
        """Returns a key that puts the best first: score, then the shallower, then the older.

        No child comes before its parent in this order, so any number of first candidates is a
        tree, however many scores are equal.

        Args:
            candidate: Index of a candidate.
        """
        found = self.candidates[candidate]
        return -found.score, found.depth, candidate

    def _depth(self, candidate: int) -> int:
        return 0 if candidate == ROOT else self.candidates[candidate].depth

    def _add_children(
        self, parent: int, log_probs: torch.Tensor, token_ids: torch.Tensor | None
    ) -> None:
        score = 0.0 if parent == ROOT else self.candidates[parent].score
        depth = self._depth(parent) + 1
        wanted = self._num_children(parent)
        places = best_tokens(log_probs, wanted) if wanted else []
        tokens = places if token_ids is None else token_ids[places].tolist()
        for rank, (token, step) in enumerate(zip(tokens, log_probs[places].tolist(), strict=True)):
            # A log-probability above zero is rounding; a child is never likelier than its parent.
            total = score + min(0.0, step)
            if total >= self._min_score and total > -math.inf:
                self.candidates.append(Candidate(total, depth, rank, token, parent))

    @abstractmethod
    def _num_children(self, parent: int) -> int:
        """How many children of a node are candidates."""

    @abstractmethod
    def _next_frontier(self, level: Sequence[int]) -> list[int]:
        """Which candidates of the newest level are evaluated."""

    @abstractmethod
    def _drafted(self) -> list[int]:
        """Which candidates are drafted: with each node its parent."""


def best_tokens(keys: torch.Tensor, count: int) -> list[int]:
    """Returns the tokens with the largest keys, best first, the lower id first among equals.

    Args:
        keys: ``[vocab]``; minus infinity is never taken.
        count: Most tokens to return.
    """
    values, tokens = keys.topk(min(count + 1, len(keys)))
    pairs = sorted(zip((-values).tolist(), tokens.tolist(), strict=True))
    if len(pairs) > count and pairs[count - 1][0] == pairs[count][0]:
        # Which of equal keys topk returns is not defined; a stable sort is, but slower.
        values, tokens = keys.sort(descending=True, stable=True)
        pairs = list(zip((-values[:count]).tolist(), tokens[:count].tolist(), strict=True))
    return [token for key, token in pairs[:count] if key < math.inf]
