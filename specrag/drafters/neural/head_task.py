"""HeadTask: the draft of one row while a head makes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from specrag.decoding.tree import ROOT, DraftTree
from specrag.drafters.heads.projection import Projection
from specrag.drafters.neural.head_row import HeadRow
from specrag.drafters.neural.row import precise
from specrag.drafters.trees.growing_tree import Candidate, GrowingTree


class DrawnChain:
    """A chain of tokens that were drawn, for rows that rejection sampling verifies.

    Args:
        num_tokens: Most tokens.
    """

    def __init__(self, num_tokens: int) -> None:
        self._num_tokens = num_tokens
        self._probs: list[torch.Tensor] = []
        self._worths: list[float] = []
        self.candidates: list[Candidate] = []
        self.frontier: list[int] = [ROOT]

    def path(self, candidate: int) -> tuple[int, ...]:
        """Returns the candidates down to one.

        Args:
            candidate: Index of a candidate.
        """
        return tuple(range(candidate + 1))

    def draw(self, row: HeadRow, logits: torch.Tensor, ahead: Sequence[int]) -> None:
        """Draws the next token.

        Args:
            row: Draws it.
            logits: ``[vocab]`` of the whole vocabulary.
            ahead: Tokens assumed behind the committed ones, those of the chain left out.
        """
        said = [candidate.token for candidate in self.candidates]
        choice = row.chooser.choose(logits, (*ahead, *said))
        if choice is None:
            self.frontier = []
            return
        assert choice.probs is not None, "a drawn token has a law"
        place = len(self.candidates)
        self.candidates.append(Candidate(0.0, place + 1, 0, choice.token_id, place - 1))
        self._probs.append(choice.probs)
        self._worths.append(choice.worth * (self._worths[-1] if self._worths else 1.0))
        self.frontier = [place] if place + 1 < self._num_tokens else []

    def tree(self) -> DraftTree:
        """Returns the chain with the law of each token."""
        chain = DraftTree.chain([c.token for c in self.candidates], self._worths)
        return replace(chain, draft_probs=torch.stack(self._probs)) if self._probs else chain


@dataclass(slots=True)
class HeadTask:
    """One row's draft.

    Attributes:
        row: The row.
        ahead: Tokens assumed behind its committed ones.
        growing: The draft.
        slots: Where the evaluated candidates are pending.
        states: The state behind each evaluated candidate, ``[hidden]``; of the root as well.
    """

    row: HeadRow
    ahead: tuple[int, ...]
    growing: GrowingTree | DrawnChain
    slots: dict[int, int] = field(default_factory=dict)
    states: dict[int, torch.Tensor] = field(default_factory=dict)

    def grow(self, logits: torch.Tensor, projection: Projection) -> None:
        """Lets the draft grow by what follows its frontier.

        Args:
            logits: ``[frontier, draft vocab]``.
            projection: Names the tokens of the draft vocabulary.
        """
        growing, chooser = self.growing, self.row.chooser
        if isinstance(growing, DrawnChain):
            growing.draw(self.row, projection.widened(logits[0]), self.ahead)
        elif chooser.is_plain:
            growing.grow(torch.log_softmax(precise(logits), dim=-1), projection.token_ids)
        else:
            aheads = [(*self.ahead, *growing.tokens_to(node)) for node in growing.frontier]
            growing.grow(chooser.log_probs(projection.widened(logits), aheads))

    def level(self) -> list[tuple[int, torch.Tensor, int]]:
        """Returns token, parent's state and depth of each node of the frontier."""
        found = [self.growing.candidates[node] for node in self.growing.frontier]
        depth = len(self.ahead) - 1
        return [(c.token, self.states[c.parent], depth + c.depth) for c in found]

    def visible(self, node: int) -> list[int]:
        """Returns the pending slots that a node of the frontier attends to, its own left out.

        Args:
            node: Index of a candidate.
        """
        above = self.growing.path(node)[:-1]
        return [*range(len(self.ahead)), *(self.slots[ancestor] for ancestor in above)]
