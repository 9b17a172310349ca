"""Optimistic drafting: the next round is drafted while the target verifies this one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from specrag.decoding.budget import DraftBudget
from specrag.decoding.drafter import DraftSession
from specrag.decoding.tree import ROOT, DraftTree, likeliest_chain


class AheadDrafting:
    """Drafts in a thread of its own, on the guess that the likeliest path is accepted whole.

    The guess covers the bonus token as well: it is a child of the root of the tree drafted ahead,
    and what lies below it is the next draft. A wrong guess is dropped, and costs nothing where
    the drafter would have been idle.

    Args:
        drafts: Must not be used by others between ``start`` and ``finish``.
    """

    def __init__(self, drafts: DraftSession) -> None:
        self._drafts = drafts
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="specrag-draft")
        self._running: Future[dict[int, DraftTree]] | None = None
        self._paths: dict[int, tuple[int, ...]] = {}
        self._ready: dict[int, DraftTree] = {}

    def start(
        self, rows: Sequence[int], budgets: Sequence[DraftBudget], trees: Sequence[DraftTree]
    ) -> None:
        """Begins to draft the round after the one that is being verified.

        Args:
            rows: The running rows.
            budgets: Of this round, taken for those of the next.
            trees: What is being verified.
        """
        self._paths, wider = {}, []
        for row, budget, tree in zip(rows, budgets, trees, strict=True):
            nodes, depth = budget.num_speculative_tokens, budget.max_depth
            if nodes and depth:  # a row that may not draft now hardly may in the next round
                self._paths[row] = likeliest_chain(tree).token_ids
                # One level and one node more, which the guessed bonus token takes.
                wider.append(DraftBudget(nodes + 1, depth + 1, budget.branching))
        if wider:
            paths = list(self._paths.values())
            self._running = self._thread.submit(self._propose, list(self._paths), wider, paths)

    def wait(self) -> None:
        """Waits for the drafts, before anything of the round is committed.

        Raises:
            Exception: Whatever the drafter raised.
        """
        if self._running is not None:
            self._running.result()

    def finish(self, emitted: Mapping[int, Sequence[int]]) -> tuple[set[int], set[int]]:
        """Waits for the drafts and keeps those whose guess was right.

        Args:
            emitted: What the verified round brought to each row that goes on.

        Returns:
            The rows that were drafted for, and those of them whose draft is kept.

        Raises:
            Exception: Whatever the drafter raised; nothing does behind ``wait``.
        """
        if self._running is None:
            return set(), set()
        running, self._running = self._running, None
        trees = {row: tree for row, tree in running.result().items() if len(tree)}
        for row, tree in trees.items():
            tokens = tuple(emitted.get(row, ()))
            right = bool(tokens) and tokens[:-1] == self._paths[row]
            node = tree.children().get((ROOT, tokens[-1])) if right else None
            if node is not None and len(rest := tree.below(node)):
                self._ready[row] = rest
        return set(trees), set(self._ready)

    def take(self) -> dict[int, DraftTree]:
        """Returns the kept drafts by row, once."""
        ready, self._ready = self._ready, {}
        return ready

    def discard(self) -> None:
        """Waits for a running draft and drops everything; for a round that failed."""
        if self._running is not None:
            self._running.exception()  # waits, and leaves what it raised to the round that failed
        self._running = None
        self._ready = {}

    def close(self) -> None:
        """Ends the thread, after the draft that it may be working on."""
        self.discard()
        self._thread.shutdown(wait=True)

    def _propose(
        self,
        rows: Sequence[int],
        budgets: Sequence[DraftBudget],
        paths: Sequence[tuple[int, ...]],
    ) -> dict[int, DraftTree]:
        with torch.inference_mode():  # a thread has a mode of its own
            return dict(zip(rows, self._drafts.propose_after(rows, budgets, paths), strict=True))
