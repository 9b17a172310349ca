"""The goodput policy: draft as much as brings the most expected tokens per time, or nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from operator import mul
from typing import NamedTuple

from specrag.decoding.acceptance import DepthAcceptance
from specrag.decoding.budget import DraftBudget, PassCosts, SpeculationConfig
from specrag.decoding.policy import Pause, SpeculationPolicy, num_accepted
from specrag.decoding.stats import DecodingStats
from specrag.decoding.tree import DraftTree

FREE_DRAFT = 0.02
"""A draft level cheaper than this share of a pass is made whether or not it is sent."""

_HOPED_FOR = 0.7  # acceptance of a costly drafter before anything is known of it
_GUARD_WINDOW = 32  # drafts that the guard looks at
_CLEAR_LOSS = 0.9  # tokens per cost of recent drafts; a little under 1 may be bad luck
_LEAST_GAIN = 1.02  # an expected gain below this is not worth the risk
_PROBES = 4  # rounds that a costly drafter gets to show that it pays again


class GoodputPolicy(SpeculationPolicy):
    """Maximises expected tokens per time from measured costs and learned acceptance.

    A node is worth the probability that its path is accepted: the drafter's confidence, scaled by
    what came true at its depth in this row. A pass costs what was measured for its width, all rows
    together, so a batch, which fills the width by itself, speculates less. Drafting that costs
    time is decided before it is done, drafting that costs none is judged afterwards.

    The guard: when fewer than ``min_acceptance`` of the last drafts had their first token
    accepted, and they did not pay all the same, speculation pauses, and is probed again after the
    pause. Where a wider pass costs hardly more, a third of all drafts accepted still pays; the
    acceptance alone is the wrong switch.

    Args:
        config: The limits.
        costs: What a pass costs, and a level of the drafter.
    """

    def __init__(self, config: SpeculationConfig, costs: PassCosts) -> None:
        super().__init__(config)
        self._costs = costs
        self._is_free = costs.draft_level < FREE_DRAFT
        self._rows: list[_RowState] = []
        self._pass_cost = 1.0

    def join(self) -> None:
        """Starts a row without knowledge."""
        self._rows.append(_RowState())

    def budgets(self, rows: Sequence[int]) -> list[DraftBudget]:
        """Returns the configured budget, as deep as drafting is expected to pay.

        Args:
            rows: The running rows.
        """
        most = self.config.budget()
        if self._is_free:
            return [most] * len(rows)
        return [self._budget(self._rows[row], len(rows), most) for row in rows]

    def chosen(self, rows: Sequence[int], proposals: Sequence[DraftTree]) -> list[DraftTree]:
        """Returns as much of each proposal as maximises the expected tokens per time.

        A chain drawn at random is left whole, or out altogether in a pause, which follows from
        earlier rounds: to cut it by its own tokens would bias the output.

        Args:
            rows: The running rows.
            proposals: One for each.
        """
        # A paused row takes no part, and learns from what is proposed all the same.
        offered = [
            DraftTree(domain=tree.domain) if self._rows[row].pause.is_running else tree
            for row, tree in zip(rows, proposals, strict=True)
        ]
        if any(tree.draft_probs is not None for tree in proposals):
            self._pass_cost = self._relative_cost(len(rows), max(map(len, offered)))
            return offered
        trees = [
            best_first(tree, self._rows[row].acceptance.calibrated(tree))
            for row, tree in zip(rows, offered, strict=True)
        ]
        num_nodes = worthwhile(trees, self._costs)
        self._pass_cost = self._relative_cost(len(rows), num_nodes)
        return [tree.truncated(num_nodes, tree.max_depth) for tree in trees]

    def _relative_cost(self, num_rows: int, num_nodes: int) -> float:
        wide = self._costs.of(num_rows * (1 + num_nodes))
        return wide / self._costs.of(num_rows)

    def record(
        self,
        row: int,
        proposal: DraftTree,
        sent: DraftTree,
        emitted: Sequence[int],
        stats: DecodingStats,
    ) -> None:
        """Learns from a round, and switches speculation off or on.

        Args:
            row: Index of the row.
            proposal: What the drafter gave.
            sent: The part of it that was verified.
            emitted: The tokens of the round.
            stats: The row's counters.
        """
        state = self._rows[row]
        state.acceptance.record(proposal, emitted)
        if state.pause.is_running:
            self._go_on_pausing(state, stats)
            return
        if len(sent):
            levels = proposal.max_depth * self._costs.draft_level
            num_right = num_accepted(sent, emitted)
            outcome = _Outcome(num_right > 0, len(emitted), self._pass_cost + levels)
            state.recent.append(outcome)
        state.probes_left = max(0, state.probes_left - 1)
        if state.gave_up or self._does_not_pay(state):
            state.gave_up = False
            state.pause.start(stats)
            state.recent.clear()  # the probe after the pause is judged by itself
        elif len(state.recent) == _GUARD_WINDOW:
            state.pause.forget()

    def _go_on_pausing(self, state: _RowState, stats: DecodingStats) -> None:
        state.pause.count(stats)
        if not state.pause.is_running:
            state.acceptance.fade(0.5)
            state.probes_left = _PROBES

    def _does_not_pay(self, state: _RowState) -> bool:
        """Judges the last drafts by what they brought, not by what was expected of them."""
        recent = state.recent
        if len(recent) < _GUARD_WINDOW // 2 or not self.config.min_acceptance:
            return False
        goodput = sum(out.num_tokens for out in recent) / sum(out.cost for out in recent)
        acceptance = sum(out.is_right for out in recent) / len(recent)
        return goodput < (1.0 if acceptance < self.config.min_acceptance else _CLEAR_LOSS)

    def _budget(self, state: _RowState, num_rows: int, most: DraftBudget) -> DraftBudget:
        """Decides the depth before a drafter spends time on it."""
        if state.pause.is_running or not most.num_speculative_tokens:
            return DraftBudget(0, 0, most.branching)
        depths = range(1 + most.max_depth)
        rates = [state.acceptance.rate(depth, _HOPED_FOR) for depth in depths[1:]]
        expected: list[float] = list(accumulate(accumulate(rates, mul), initial=1.0))

        def speed(depth: int) -> float:
            spent = self._costs.of(num_rows * (1 + depth)) + depth * self._costs.draft_level
            return expected[depth] / spent

        best = max(depths, key=speed)
        if state.probes_left:
            best = max(best, min(2, most.max_depth))
        elif not self.config.min_acceptance:
            best = max(best, min(1, most.max_depth))
        state.gave_up = best == 0
        if not best:
            return DraftBudget(0, 0, most.branching)
        # Alternatives cost a drafter no further level, so a tree keeps all its nodes.
        nodes = most.num_speculative_tokens if most.branching > 1 else best
        return DraftBudget(min(nodes, most.num_speculative_tokens), best, most.branching)


class _Outcome(NamedTuple):
    """What a draft that was sent came to; the cost is in plain passes of the same batch."""

    is_right: bool
    num_tokens: int
    cost: float


class _RowState:
    def __init__(self) -> None:
        self.acceptance = DepthAcceptance()
        self.recent: deque[_Outcome] = deque(maxlen=_GUARD_WINDOW)
        self.pause = Pause()
        self.probes_left = 0
        self.gave_up = False


def best_first(tree: DraftTree, confidences: Sequence[float]) -> DraftTree:
    """Returns a tree with these confidences, the likeliest nodes first.

    Ties keep the drafter's order, so a node never comes before its parent.

    Args:
        tree: A proposal.
        confidences: One for each node, a child's no higher than its parent's.
    """
    order = sorted(range(len(tree)), key=lambda node: (-confidences[node], node))
    return replace(tree, confidences=tuple(confidences)).selected(order)


def worthwhile(trees: Sequence[DraftTree], costs: PassCosts) -> int:
    """Returns how many nodes of each tree maximise the expected tokens per time; 0 for none.

    A node is worth the probability that its path is accepted. All rows share a pass and are
    padded to the widest, so they share the number too.

    Args:
        trees: Drafts of all rows, with confidences, the likeliest nodes first.
        costs: What a pass costs.
    """
    gains = [list(accumulate(tree.confidences, initial=1.0)) for tree in trees]

    def speed(size: int) -> float:
        expected = sum(gain[min(size, len(gain) - 1)] for gain in gains)
        return expected / costs.of(len(trees) * (1 + size))

    best = max(range(1 + max(len(tree) for tree in trees)), key=speed)
    return best if speed(best) > _LEAST_GAIN * speed(0) else 0
