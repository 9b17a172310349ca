"""The loop: propose, verify, commit, for a batch of rows that come and go at different times."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence

import torch

from specrag.decoding.ahead import AheadDrafting
from specrag.decoding.budget import DraftBudget, PassCosts, SpeculationConfig
from specrag.decoding.drafter import DraftContext, Drafter, SilentSession
from specrag.decoding.features import FeatureLog
from specrag.decoding.policies import choose_policy
from specrag.decoding.prefill import prefill
from specrag.decoding.row import DecodingRequest, Row, RowUpdate, new_row
from specrag.decoding.stats import DecodingTimings
from specrag.decoding.tree import DraftTree, likeliest_chain, pack
from specrag.decoding.verify import Verification
from specrag.errors import InputError
from specrag.models.prefix_cache import PrefixCache, States
from specrag.models.target import ModelOutput, TargetModel
from specrag.models.tokenizer import Tokenizer

_STRICT_NODES = 8
"""Kernels take rows in groups; a row of an incomplete group is added up in another order."""

_STRICT_SLOTS = 512
"""The slots that torch's attention on a CPU takes at a time: a block that is always whole.

With 64 the bits of models with heads of 64 and 128 dimensions changed with the length of the text.
"""


class DecodingSession:
    """Decodes a batch round by round; rows can join and be cancelled between any two rounds.

    Between rounds the cache of each running row holds exactly its prompt and its emitted tokens
    but the last, which is the root of the next draft. This holds after an error as well: a round
    that failed has changed nothing and can be tried again. Only an error of the drafter's
    ``observe`` comes when the round is done: it counts, though its updates are lost.

    Args:
        target: Decides every token.
        drafter: Guesses them.
        tokenizer: Makes text of them.
        requests: The first rows.
        config: How much to speculate.
        costs: What a pass costs; None lets every draft through.
        prefix_cache: What was computed of earlier requests, to take over and to add to.

    Attributes:
        faulty_row: The row whose processor made the last round fail; None when it did not fail,
            or failed for another reason.

    Raises:
        InputError: There is no prompt, or one is empty or leaves no room in the context.
    """

    def __init__(
        self,
        target: TargetModel,
        drafter: Drafter,
        tokenizer: Tokenizer,
        requests: Sequence[DecodingRequest],
        config: SpeculationConfig,
        costs: PassCosts | None = None,
        prefix_cache: PrefixCache | None = None,
    ) -> None:
        if not requests:
            raise InputError("there is no prompt")
        self._target = target
        self._drafter = drafter
        self._tokenizer = tokenizer
        self._config = config
        # Reused keys were computed at another width, which strict decoding rules out.
        self._prefix_cache = None if config.strict else prefix_cache
        self._policy = choose_policy(target, config, costs)
        self.rows: list[Row] = []
        self._live: list[int] = []
        self._waiting: list[int] = []
        for request in requests:
            self._add_row(request)
        self.cache = target.new_cache(0, self._capacity(self._waiting))
        contexts = [self._context(row) for row in self.rows]
        # A drafter is not even bound to a target that only decodes plainly.
        plain = target.no_speculation
        self._drafts = SilentSession(len(contexts)) if plain else drafter.open(contexts)
        layers = () if plain else drafter.feature_layers
        self._features = FeatureLog(layers, keeps_all=self._prefix_cache is not None)
        self._ahead = AheadDrafting(self._drafts) if self._is_optimistic() else None
        self.timings = DecodingTimings()
        self.faulty_row: int | None = None

    @property
    def finished(self) -> bool:
        """Whether every row has ended."""
        return not self._live and not self._waiting

    def add(self, request: DecodingRequest) -> int:
        """Adds a row to the running batch; the next round prefills it.

        Args:
            request: What it asks for.

        Returns:
            Index of the row.

        Raises:
            InputError: The prompt is empty or leaves no room in the context.
            FixedBatchError: The drafter's sessions cannot grow.
        """
        row = new_row(request, self._target, self._tokenizer)
        self._drafts.join(self._context(row))
        return self._enter(row)

    def cancel(self, index: int) -> RowUpdate:
        """Ends a row between two rounds; harmless when it has ended.

        Args:
            index: Of the row.

        Returns:
            Text that was held back until now.
        """
        row = self.rows[index]
        if row.finish_reason:
            return RowUpdate(finish_reason=row.finish_reason)
        update = row.cancel()
        self._waiting = [waiting for waiting in self._waiting if waiting != index]
        self._drop_finished()
        return update

    @torch.inference_mode()
    def step(self) -> dict[int, RowUpdate]:
        """Runs one round.

        With new rows it is their prefill and gives them their first token; the others wait.

        Returns:
            Row index to what the round added, for each row that took part; nothing when every
            row has ended.
        """
        self.faulty_row = None
        if self._waiting:
            return self._prefill()
        if not self._live:
            return {}
        started = time.perf_counter()
        try:
            proposals, budgets = self._propose()
            trees = self._policy.chosen(self._live, proposals)
            drafted = time.perf_counter()
            updates = self._verify(proposals, trees, budgets)
        except BaseException:
            self._abandon_round()
            raise
        ended = time.perf_counter()
        self._count_time(updates, draft_ms=drafted - started, verify_ms=ended - drafted)
        return updates

    def close(self) -> None:
        """Ends the session early or late; harmless to repeat."""
        if self._ahead is not None:
            self._ahead.close()
        for slot, index in enumerate(self._live):
            self._keep_prefix(slot, index)
        self._drafts.close()
        self._live = []
        self._waiting = []

    def _add_row(self, request: DecodingRequest) -> None:
        self._enter(new_row(request, self._target, self._tokenizer))

    def _enter(self, row: Row) -> int:
        self.rows.append(row)
        self._policy.join()
        self._waiting.append(len(self.rows) - 1)
        return len(self.rows) - 1

    def _context(self, row: Row) -> DraftContext:
        request = row.request
        rejection = self._config.verification == "rejection" and not row.sampler.is_greedy
        return DraftContext(request.prompt_ids, request.passages, row.sampler, rejection)

    def _capacity(self, indices: Sequence[int]) -> int:
        requests = [self.rows[index].request for index in indices]
        longest = max(len(request.prompt_ids) + request.params.max_tokens for request in requests)
        # The widest draft must fit behind the last token, or the last rounds would overflow.
        return longest + self._config.num_speculative_tokens + 1

    def _is_optimistic(self) -> bool:
        wish = self._config.optimistic
        if self._target.no_speculation:
            return False
        if wish != "auto":
            return wish == "on"
        # On one processor the two only take turns.
        return bool(self._drafter.device != self._target.device.type)

    def _prefill(self) -> dict[int, RowUpdate]:
        started = time.perf_counter()
        indices = self._waiting
        rows = [self.rows[index] for index in indices]
        ready = prefill(
            self._target,
            [row.request for row in rows],
            self._capacity(indices),
            self._prefix_cache,
            _STRICT_SLOTS if self._config.strict else 1,
            self._features.layers,
        )
        last = [logits[-1:] for logits in ready.logits]
        outcomes = [
            self._outcome(index, DraftTree(), logits, logits.argmax(-1).tolist())
            for index, logits in zip(indices, last, strict=True)
        ]
        if self._live:
            self.cache.join(ready.cache)
        else:
            self.cache = ready.cache
        self._waiting = []
        self._live += indices
        updates = {}
        for slot, (index, row) in enumerate(zip(indices, rows, strict=True)):
            updates[index] = row.take(DraftTree(), last[slot], outcomes[slot])
            self._features.add(index, ready.features[slot])
            row.stats.num_tokens += 1
            row.stats.num_cached_tokens = ready.num_cached[slot]
            row.trace_prompt(ready.logits[slot])
        self._drop_finished()
        self._tell_drafter(updates)
        self._count_time(updates, prefill_ms=time.perf_counter() - started)
        return updates

    def _count_time(self, rows: Iterable[int], **seconds: float) -> None:
        spent = DecodingTimings(**{name: 1e3 * value for name, value in seconds.items()})
        self.timings.add(spent)
        for index in rows:
            self.rows[index].timings.add(spent)

    def _propose(self) -> tuple[list[DraftTree], list[DraftBudget]]:
        """Asks the drafter for the rows that have no draft made in advance."""
        budgets = [
            budget.within(self.rows[index].checker.tokens_left)
            for index, budget in zip(self._live, self._policy.budgets(self._live), strict=True)
        ]
        found = self._ahead.take() if self._ahead is not None else {}
        wanted = [
            (index, budget)
            for index, budget in zip(self._live, budgets, strict=True)
            if index not in found
        ]
        if wanted:
            indices, asked = zip(*wanted, strict=True)
            trees = self._drafts.propose(list(indices), list(asked))
            found.update(zip(indices, trees, strict=True))
        trees = [found[index] for index in self._live]
        if self._config.strict:
            # Nodes side by side lie in other slots than the tokens of plain decoding.
            trees = [tree if tree.is_chain else likeliest_chain(tree) for tree in trees]
        return [
            tree.truncated(budget.num_speculative_tokens, budget.max_depth)
            for tree, budget in zip(trees, budgets, strict=True)
        ], budgets

    def _verify(
        self,
        proposals: Sequence[DraftTree],
        trees: Sequence[DraftTree],
        budgets: Sequence[DraftBudget],
    ) -> dict[int, RowUpdate]:
        roots = [self.rows[index].token_ids[-1] for index in self._live]
        strict = self._config.strict and not self._target.no_speculation
        width = _strict_width(self._config) if strict else 0
        if self._ahead is not None:
            self._ahead.start(self._live, budgets, trees)
        tree_pass = pack(roots, trees, width=width)
        output = self._target.forward(tree_pass, self.cache, self._features.layers)
        argmax = output.logits.argmax(-1).tolist()
        # All rows are verified before any of them changes: a processor of the user may raise, and
        # so may the drafter.
        outcomes = [
            self._outcome(*found)
            for found in zip(self._live, trees, output.logits, argmax, strict=True)
        ]
        if self._ahead is not None:
            self._ahead.wait()
        updates = self._commit(proposals, trees, output, outcomes)
        self._drop_finished()
        self._tell_drafter(updates)
        return updates

    def _outcome(
        self, index: int, tree: DraftTree, logits: torch.Tensor, argmax: Sequence[int]
    ) -> Verification:
        try:
            return self.rows[index].verify(tree, logits, argmax)
        except BaseException:
            self.faulty_row = index
            raise

    def _commit(
        self,
        proposals: Sequence[DraftTree],
        trees: Sequence[DraftTree],
        output: ModelOutput,
        outcomes: Sequence[Verification],
    ) -> dict[int, RowUpdate]:
        updates: dict[int, RowUpdate] = {}
        for slot, (index, tree, outcome) in enumerate(
            zip(self._live, trees, outcomes, strict=True)
        ):
            row = self.rows[index]
            update = updates[index] = row.take(tree, output.logits[slot], outcome)
            num_emitted = len(update.token_ids)
            self._features.add_path(index, output.features, slot, outcome.path, num_emitted)
            row.stats.record(tree, outcome.path[:num_emitted], num_emitted, self._drafter.name)
            row.stats.num_unsent_tokens += len(proposals[slot]) - len(tree)
            self._policy.record(index, proposals[slot], tree, update.token_ids, row.stats)
        self.cache.commit([[0, *(node + 1 for node in outcome.path)] for outcome in outcomes])
        self._look_back(updates)
        return updates

    def _tell_drafter(self, updates: Mapping[int, RowUpdate]) -> None:
        """Comes last, and tells each row its own even when another one raises."""
        with contextlib.ExitStack() as told:
            for index, update in reversed(list(updates.items())):
                features = self._features.newest(index)
                told.callback(self._drafts.observe, index, update.token_ids, features)

    def _look_back(self, updates: Mapping[int, RowUpdate]) -> None:
        """Settles the drafts made in advance; the drafter is free again then."""
        if self._ahead is None:
            return
        emitted = {i: update.token_ids for i, update in updates.items() if not update.finish_reason}
        drafted, kept = self._ahead.finish(emitted)
        for index in updates:
            self.rows[index].stats.num_ahead_drafts += index in drafted
            self.rows[index].stats.num_ahead_kept += index in kept

    def _abandon_round(self) -> None:
        """Leaves the session as it was before a round that failed."""
        if self._ahead is not None:
            self._ahead.discard()
        self.cache.rollback(self.cache.lengths)

    def _drop_finished(self) -> None:
        """Rolls back what lies behind the end of an answer, and frees the rows that ended."""
        kept = [self.rows[index].history.length - 1 for index in self._live]
        self.cache.rollback([min(a, b) for a, b in zip(kept, self.cache.lengths, strict=True)])
        running = [i for i, index in enumerate(self._live) if not self.rows[index].finish_reason]
        if len(running) == len(self._live):
            return
        for slot in set(range(len(self._live))) - set(running):
            self._keep_prefix(slot, self._live[slot])
        self.cache.select_rows(running)
        self._live = [self._live[i] for i in running]

    def _keep_prefix(self, slot: int, index: int) -> None:
        if self._prefix_cache is None or self._target.no_speculation:
            return
        row, length = self.rows[index], self.cache.lengths[slot]
        tokens = [*row.request.prompt_ids, *row.token_ids][:length]
        keys_values = self.cache.export_row(slot, length)
        self._prefix_cache.add(tokens, States(keys_values, self._features.take_all(index)))


def _strict_width(config: SpeculationConfig) -> int:
    """Nodes of every pass of strict decoding, root included."""
    return -(-(1 + config.num_speculative_tokens) // _STRICT_NODES) * _STRICT_NODES
