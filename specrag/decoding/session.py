"""The loop: propose, verify, commit, for a batch of rows that finish at different times."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from specrag.decoding.budget import DraftBudget, PassCosts, SpeculationConfig, worthwhile
from specrag.decoding.detokenizer import Detokenizer
from specrag.decoding.drafter import DraftContext, Drafter
from specrag.decoding.row import DecodingRequest, Row, RowUpdate
from specrag.decoding.sampling import TokenHistory, TokenSampler
from specrag.decoding.stats import DecodingTimings
from specrag.decoding.stopping import StopChecker
from specrag.decoding.trace import VerificationTrace
from specrag.decoding.tree import DraftTree, pack
from specrag.errors import InputError
from specrag.models.target import TargetModel
from specrag.models.tokenizer import Tokenizer


class DecodingSession:
    """Decodes a batch round by round; can be paused between any two rounds.

    Between rounds the cache of each running row holds exactly its prompt and its emitted tokens
    but the last, which is the root of the next draft.

    Args:
        target: Decides every token.
        drafter: Guesses them.
        tokenizer: Makes text of them.
        requests: The rows.
        config: How much to speculate.
        costs: What a pass costs; None lets every draft through.

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
    ) -> None:
        if not requests:
            raise InputError("there is no prompt")
        self._target = target
        self._config = config
        self._costs = costs
        self._tokenizer = tokenizer
        self.rows = [self._new_row(request) for request in requests]
        self._live = list(range(len(self.rows)))
        longest = max(len(request.prompt_ids) + request.params.max_tokens for request in requests)
        # The widest draft must fit behind the last token, or the last rounds would overflow.
        self.cache = target.new_cache(len(self.rows), longest + config.num_speculative_tokens + 1)
        self._drafts = drafter.open(
            [DraftContext(request.prompt_ids, request.passages) for request in requests]
        )
        target.feature_layers = drafter.feature_layers
        self.timings = DecodingTimings()
        self._prefilled = False

    @property
    def finished(self) -> bool:
        """Whether every row has ended."""
        return not self._live

    @torch.inference_mode()
    def step(self) -> dict[int, RowUpdate]:
        """Runs one round; the first one is prefill and gives each row its first token.

        Returns:
            Row index to what the round added, for each row that was running.
        """
        if not self._prefilled:
            return self._prefill()
        started = time.perf_counter()
        rows = [self.rows[index] for index in self._live]
        trees = self._propose(rows)
        drafted = time.perf_counter()
        roots = [row.token_ids[-1] for row in rows]
        output = self._target.forward(pack(roots, trees), self.cache)
        updates = self._commit(trees, output.logits)
        self.timings.draft_ms += 1e3 * (drafted - started)
        self.timings.verify_ms += 1e3 * (time.perf_counter() - drafted)
        return updates

    def close(self) -> None:
        """Ends the session early or late; harmless to repeat."""
        self._drafts.close()
        self._live = []

    def _new_row(self, request: DecodingRequest) -> Row:
        room = self._target.max_context - len(request.prompt_ids)
        if not request.prompt_ids:
            raise InputError("the prompt is empty")
        if room < 1:
            raise InputError(
                f"the prompt has {len(request.prompt_ids)} tokens; {self._target.name} holds "
                f"{self._target.max_context}, answer included",
                hint="shorten the prompt, or retrieve fewer passages",
            )
        detokenizer = Detokenizer(self._tokenizer)
        checker = StopChecker(request.params, self._target.eos_token_ids, detokenizer, room)
        capacity = len(request.prompt_ids) + min(request.params.max_tokens, room) + 1
        return Row(
            request,
            TokenSampler(request.params),
            TokenHistory(request.prompt_ids, capacity),
            checker,
            trace=VerificationTrace() if request.num_traced else None,
        )

    def _prefill(self) -> dict[int, RowUpdate]:
        started = time.perf_counter()
        prompts = [row.request.prompt_ids for row in self.rows]
        num_logits = 1 + max(row.request.num_traced for row in self.rows)
        output = self._target.prefill(prompts, self.cache, num_logits)
        self._prefilled = True
        updates = {}
        for index, row in enumerate(self.rows):
            logits = output.logits[index, -1:]
            _, updates[index] = row.take(DraftTree(), logits, logits.argmax(-1).tolist())
            row.stats.num_tokens += 1
            self._trace_prompt(row, output.logits[index])
            self._drafts.observe(index, updates[index].token_ids)
        self._drop_finished()
        self.timings.prefill_ms += 1e3 * (time.perf_counter() - started)
        return updates

    def _trace_prompt(self, row: Row, logits: torch.Tensor) -> None:
        """Scores the last prompt tokens; the logits before each of them are at hand."""
        count = min(row.request.num_traced, len(row.request.prompt_ids) - 1)
        if row.trace is None or count < 1:
            return
        tokens = torch.tensor(row.request.prompt_ids[-count:], device=logits.device)
        log_probs = torch.log_softmax(logits[-count - 1 : -1].float(), dim=-1)
        row.trace.prompt_logprobs = log_probs.gather(1, tokens.unsqueeze(1)).squeeze(1).tolist()

    def _propose(self, rows: Sequence[Row]) -> list[DraftTree]:
        budgets = [self._budget(row) for row in rows]
        trees = self._drafts.propose(self._live, budgets)
        trees = [
            tree.truncated(budget.num_speculative_tokens, budget.max_depth)
            for tree, budget in zip(trees, budgets, strict=True)
        ]
        # A drafter without confidences has said nothing about worth: its trees stay whole.
        if self._costs is None or any(len(tree) != len(tree.confidences) for tree in trees):
            return trees
        num_nodes = worthwhile(trees, self._costs)
        return [tree.truncated(num_nodes, tree.max_depth) for tree in trees]

    def _budget(self, row: Row) -> DraftBudget:
        return self._config.budget().within(row.checker.tokens_left)

    def _commit(self, trees: Sequence[DraftTree], logits: torch.Tensor) -> dict[int, RowUpdate]:
        argmax = logits.argmax(-1).tolist()
        paths: list[list[int]] = []
        updates: dict[int, RowUpdate] = {}
        for slot, (index, tree) in enumerate(zip(self._live, trees, strict=True)):
            row = self.rows[index]
            verification, update = row.take(tree, logits[slot], argmax[slot])
            paths.append([0, *(node + 1 for node in verification.path)])
            num_emitted = len(update.token_ids)
            row.stats.record(tree, min(verification.num_accepted, num_emitted), num_emitted)
            updates[index] = update
        self.cache.commit(paths)
        for index, update in updates.items():
            self._drafts.observe(index, update.token_ids)
        self._drop_finished()
        return updates

    def _drop_finished(self) -> None:
        """Rolls back what lies behind the end of an answer, and frees the rows that ended."""
        kept = [self.rows[index].history.length - 1 for index in self._live]
        self.cache.rollback([min(a, b) for a, b in zip(kept, self.cache.lengths, strict=True)])
        running = [i for i, index in enumerate(self._live) if not self.rows[index].finish_reason]
        if running and len(running) < len(self._live):
            self.cache.select_rows(running)
        self._live = [self._live[i] for i in running]
