"""How much to speculate, round by round: the contract, and the policies that ask no costs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Sequence

from specrag.decoding.budget import DraftBudget, SpeculationConfig
from specrag.decoding.stats import DecodingStats
from specrag.decoding.tree import ROOT, DraftTree

_WINDOW = 10
_STEPS = ((0.85, 12), (0.70, 8), (0.50, 4))
_SHORTEST, _AT_START = 2, 4
_FIRST_PAUSE, _LONGEST_PAUSE = 16, 128


class SpeculationPolicy(ABC):
    """Decides what drafters may propose and what of it the target verifies.

    One object a session; its state depends on the text alone and on costs that were measured
    before, never on a clock, so that a session decides alike each time it is run.

    Args:
        config: The limits.
    """

    def __init__(self, config: SpeculationConfig) -> None:
        self.config = config

    @abstractmethod
    def join(self) -> None:
        """Takes note of a further row."""

    @abstractmethod
    def budgets(self, rows: Sequence[int]) -> list[DraftBudget]:
        """Returns the largest tree that may be proposed for each row now.

        Args:
            rows: The running rows.
        """

    def chosen(self, rows: Sequence[int], proposals: Sequence[DraftTree]) -> list[DraftTree]:
        """Returns the parts of the proposals that are worth a verification.

        Args:
            rows: The running rows.
            proposals: One for each, within its budget.
        """
        return list(proposals)

    def record(  # noqa: B027 - a hook for the policies that learn
        self,
        row: int,
        proposal: DraftTree,
        sent: DraftTree,
        emitted: Sequence[int],
        stats: DecodingStats,
    ) -> None:
        """Learns from a round of one row.

        Args:
            row: Index of the row.
            proposal: What the drafter gave.
            sent: The part of it that was verified.
            emitted: The tokens of the round.
            stats: The row's counters; switching off and pauses are counted here.
        """


class FixedPolicy(SpeculationPolicy):
    """The same budget each round, whatever comes of it."""

    def join(self) -> None:
        """Needs to know nothing of a row."""

    def budgets(self, rows: Sequence[int]) -> list[DraftBudget]:
        """Returns the configured budget.

        Args:
            rows: The running rows.
        """
        return [self.config.budget()] * len(rows)


class RecentAcceptancePolicy(SpeculationPolicy):
    """The length of drafts follows the acceptance of the last ten of them.

    Mean acceptance over 0.85 allows 12 tokens, over 0.70 eight, over 0.50 four, else two; four
    before ten are known; never more than configured. Under ``min_acceptance`` speculation pauses.
    """

    def __init__(self, config: SpeculationConfig) -> None:
        super().__init__(config)
        self._recent: list[deque[float]] = []
        self._pauses: list[Pause] = []

    def join(self) -> None:
        """Starts a row without knowledge."""
        self._recent.append(deque(maxlen=_WINDOW))
        self._pauses.append(Pause())

    def budgets(self, rows: Sequence[int]) -> list[DraftBudget]:
        """Returns the budget that the recent acceptance allows.

        Args:
            rows: The running rows.
        """
        return [self._budget(row) for row in rows]

    def record(
        self,
        row: int,
        proposal: DraftTree,
        sent: DraftTree,
        emitted: Sequence[int],
        stats: DecodingStats,
    ) -> None:
        """Notes the accepted share of the draft's depth.

        Args:
            row: Index of the row.
            proposal: What the drafter gave.
            sent: The part of it that was verified.
            emitted: The tokens of the round.
            stats: The row's counters.
        """
        pause, recent = self._pauses[row], self._recent[row]
        if pause.is_running:
            pause.count(stats)
            return
        if len(sent):
            recent.append(num_accepted(sent, emitted) / sent.max_depth)
        if len(recent) == _WINDOW and _mean(recent) < self.config.min_acceptance:
            pause.start(stats)
            recent.clear()  # the probe after the pause is judged by itself
        elif len(recent) == _WINDOW:
            pause.forget()

    def _budget(self, row: int) -> DraftBudget:
        if self._pauses[row].is_running:
            return DraftBudget(0, 0, self.config.branching)
        most = self.config.budget()
        recent = self._recent[row]
        length = _AT_START
        if len(recent) == _WINDOW:
            mean = _mean(recent)
            length = next((tokens for least, tokens in _STEPS if mean > least), _SHORTEST)
        nodes = min(length, most.num_speculative_tokens)
        return DraftBudget(nodes, min(length, most.max_depth), most.branching)


class Pause:
    """Rounds without speculation, longer each time that it did not pay again."""

    def __init__(self) -> None:
        self._left = 0
        self._next = _FIRST_PAUSE

    @property
    def is_running(self) -> bool:
        """Whether speculation is off now."""
        return self._left > 0

    def start(self, stats: DecodingStats) -> None:
        """Switches speculation off.

        Args:
            stats: Counts it.
        """
        self._left, self._next = self._next, min(2 * self._next, _LONGEST_PAUSE)
        stats.num_switched_off += 1

    def count(self, stats: DecodingStats) -> None:
        """Takes note of a round without speculation; the one after the last is a probe.

        Args:
            stats: Counts it.
        """
        self._left -= 1
        stats.num_off_passes += 1
        stats.num_probes += not self.is_running

    def forget(self) -> None:
        """Makes the next pause a short one again: speculation pays."""
        self._next = _FIRST_PAUSE


def _mean(values: Collection[float]) -> float:
    # Thirds and tenths do not add up exactly, and a mean may lie exactly on a threshold.
    return round(sum(values) / len(values), 9)


def num_accepted(tree: DraftTree, emitted: Sequence[int]) -> int:
    """Returns how many emitted tokens stand in a tree, from its root on.

    Args:
        tree: A draft.
        emitted: Tokens of the round.
    """
    children = tree.children()
    node, count = ROOT, 0
    for token in emitted:
        found = children.get((node, token))
        if found is None:
            break
        node, count = found, count + 1
    return count
