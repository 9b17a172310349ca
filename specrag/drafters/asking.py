"""Asking: how deep a drafter that costs time drafts, beside others that cost none."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from specrag.decoding.acceptance import DepthAcceptance
from specrag.decoding.budget import DraftBudget, PassCosts
from specrag.decoding.tree import ROOT, DraftTree

_HOPED_FOR = 0.6  # acceptance at a depth before anything is known of it
_FADE = 0.98  # of what is known, in a round without it: it may be better by now
_LIKELY = 0.3  # a free node is verified if it is about this likely


class Asking:
    """What one costly drafter has brought in one row, and how deep it is worth asking next.

    It is asked after the free ones, and counts where they are wrong: what copies well needs no
    head, and a head is not asked deeper than its guesses came true.

    Args:
        costs: What a pass of the target costs.
        level: What a level of the drafter costs, on the same scale.
    """

    def __init__(self, costs: PassCosts, level: float) -> None:
        self._costs = costs
        self._level = level
        self._acceptance = DepthAcceptance()

    def depth(self, free: DraftTree, most: DraftBudget, num_rows: int) -> int:
        """Returns how many levels promise the most tokens for the time; 0 does not ask.

        Args:
            free: What the free drafters propose together, with what is believed of it.
            most: The largest draft allowed.
            num_rows: Rows that share the pass.
        """
        first, total, likely = _promise(free)
        levels = range(1 + min(most.max_depth, most.num_speculative_tokens))
        rates = [self._acceptance.rate(depth, _HOPED_FOR) for depth in levels[1:]]
        brought: list[float] = list(accumulate(accumulate(rates, mul), initial=0.0))

        def speed(depth: int) -> float:
            width = num_rows * (1 + max(likely, depth))
            spent = self._costs.of(width) + depth * self._level
            return (1.0 + total + (1.0 - first) * brought[depth]) / spent

        return max(levels, key=speed)

    def learn(self, proposal: DraftTree, emitted: Sequence[int]) -> None:
        """Takes note of what came of a proposal, or of a round that it was left out of.

        Args:
            proposal: As the drafter gave it; empty where it was not asked.
            emitted: The tokens of the round.
        """
        if len(proposal):
            self._acceptance.record(proposal, emitted)
        else:
            self._acceptance.fade(_FADE)


def _promise(tree: DraftTree) -> tuple[float, float, int]:
    """The chance that the first token is right, the expected right ones, and likely nodes."""
    pairs = zip(tree.parents, tree.confidences, strict=True)
    first = sum(chance for parent, chance in pairs if parent == ROOT)
    likely = sum(chance >= _LIKELY for chance in tree.confidences)
    return min(1.0, first), sum(tree.confidences), likely
