"""One row of a batch: what was asked, what it has said so far, and when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from transformers.generation.logits_process import LogitsProcessor

from specrag.decoding.detokenizer import Detokenizer
from specrag.decoding.sampling import SamplingParams, TokenHistory, TokenSampler
from specrag.decoding.stats import DecodingStats, DecodingTimings
from specrag.decoding.stopping import FinishReason, StopChecker
from specrag.decoding.trace import (
    VerificationTrace,
    first_child,
    log_norms,
    record_token,
    top_logprobs,
)
from specrag.decoding.tree import ROOT, DraftTree
from specrag.decoding.verify import Verification, verify, verify_rejection
from specrag.errors import InputError
from specrag.models.target import TargetModel
from specrag.models.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class DecodingRequest:
    """One row of a batch.

    Attributes:
        prompt_ids: Token ids of the prompt, at least one.
        params: How to choose tokens and when to end.
        passages: Texts that the answer may copy from, as token ids, for drafters only.
        num_traced: Last prompt tokens to score; 0 records no trace at all.
        processors: The caller's own transformers ``LogitsProcessor`` objects, applied where
            transformers' ``generate`` applies them, with each node's own history.
    """

    prompt_ids: tuple[int, ...]
    params: SamplingParams
    passages: tuple[tuple[int, ...], ...] = ()
    num_traced: int = 0
    processors: tuple[LogitsProcessor, ...] = ()


@dataclass(frozen=True, slots=True)
class RowUpdate:
    """What one round added to a row.

    Attributes:
        token_ids: New tokens of the answer.
        text: New text that can be shown; may be empty, may lag behind the tokens.
        finish_reason: Set when the row has ended.
    """

    token_ids: tuple[int, ...] = ()
    text: str = ""
    finish_reason: FinishReason | None = None


@dataclass(slots=True)
class Row:
    """The state of one row: what it holds, and what it knows of its end.

    Attributes:
        request: What was asked.
        token_ids: Emitted tokens.
        logprobs: Natural log-probability of each under the unprocessed target distribution.
        top_logprobs: For each the most probable tokens there, when they were asked for.
        text: Text emitted so far.
        stats: Counters.
        timings: Of the rounds that it took part in, whoever shared them.
        trace: What the passes saw; None unless asked for.
    """

    request: DecodingRequest
    sampler: TokenSampler
    history: TokenHistory
    checker: StopChecker
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top_logprobs: list[tuple[tuple[int, float], ...]] = field(default_factory=list)
    text: str = ""
    stats: DecodingStats = field(default_factory=DecodingStats)
    timings: DecodingTimings = field(default_factory=DecodingTimings)
    trace: VerificationTrace | None = None

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the row ended, None while it runs."""
        return self.checker.finish_reason

    def verify(self, tree: DraftTree, logits: torch.Tensor, argmax: Sequence[int]) -> Verification:
        """Says what the target emits, changing nothing.

        Args:
            tree: The draft below the row's last token.
            logits: ``[1 + len(tree), vocab]``, the root first.
            argmax: The largest logit of each of these nodes.
        """
        length = self.history.length
        try:
            if tree.draft_probs is not None and not self.sampler.is_greedy:
                return self._verify_by_rejection(tree, logits)
            return verify(tree, lambda node, accepted: self._choose(node, accepted, logits, argmax))
        finally:
            self.history.truncate(length)

    def take(self, tree: DraftTree, logits: torch.Tensor, verification: Verification) -> RowUpdate:
        """Appends what the target emits, as far as it belongs to the answer.

        Args:
            tree: The draft that was verified.
            logits: ``[1 + len(tree), vocab]``, the root first.
            verification: Its outcome.
        """
        tokens = verification.token_ids
        kept, text = self.checker.push(tokens)
        for token in tokens[:kept]:
            self.history.append(token)
        nodes = (ROOT, *verification.path)[:kept]
        self._record(tree, logits, nodes, tokens[:kept])
        self.text += text
        return RowUpdate(tokens[:kept], text, self.finish_reason)

    def cancel(self) -> RowUpdate:
        """Ends the row now; text that was held back is shown."""
        text = self.checker.cancel()
        self.text += text
        return RowUpdate((), text, self.finish_reason)

    def trace_prompt(self, logits: torch.Tensor) -> None:
        """Scores the last prompt tokens; the logits before each of them are at hand.

        Args:
            logits: ``[positions, vocab]`` of the last prompt tokens.
        """
        count = min(self.request.num_traced, len(self.request.prompt_ids) - 1)
        if self.trace is None or count < 1:
            return
        tokens = torch.tensor(self.request.prompt_ids[-count:], device=logits.device)
        log_probs = torch.log_softmax(logits[-count - 1 : -1].float(), dim=-1)
        self.trace.prompt_logprobs = log_probs.gather(1, tokens.unsqueeze(1)).squeeze(1).tolist()

    def _choose(
        self, node: int, accepted: tuple[int, ...], logits: torch.Tensor, argmax: Sequence[int]
    ) -> int:
        if accepted:
            self.history.append(accepted[-1])
        if self.sampler.is_plain_argmax:
            return argmax[node + 1]
        return self.sampler.choose(logits[node + 1], self.history.view(), self.history.length)

    def _verify_by_rejection(self, tree: DraftTree, logits: torch.Tensor) -> Verification:
        def target_probs(node: int, accepted: tuple[int, ...]) -> torch.Tensor:
            if accepted:
                self.history.append(accepted[-1])
            return self.sampler.target_probs(logits[node + 1], self.history.view())

        return verify_rejection(tree, target_probs, self.sampler.seed, self.history.length)

    def _record(
        self, tree: DraftTree, logits: torch.Tensor, nodes: Sequence[int], tokens: Sequence[int]
    ) -> None:
        self.token_ids.extend(tokens)
        rows = logits[[node + 1 for node in nodes]].float()
        index = torch.tensor(tokens, device=logits.device).unsqueeze(1)
        chosen = rows.gather(1, index).squeeze(1) - log_norms(rows)
        self.logprobs.extend(chosen.tolist())
        count = self.request.params.top_logprobs
        if count:
            self.top_logprobs.extend(tuple(found) for found in top_logprobs(rows, count))
        if self.trace is not None:
            for node, token, row in zip(nodes, tokens, rows, strict=True):
                record = record_token(row, token, first_child(tree, node))
                self.trace.tokens.append(record)


def new_row(request: DecodingRequest, target: TargetModel, tokenizer: Tokenizer) -> Row:
    """Makes the row of a request.

    Args:
        request: What is asked.
        target: Decodes it.
        tokenizer: Makes text of it.

    Raises:
        InputError: The prompt is empty, has tokens that the target does not know, or leaves no
            room in the context.
    """
    room = target.max_context - len(request.prompt_ids)
    if not request.prompt_ids:
        raise InputError("the prompt is empty")
    vocab_size = target.vocab_size
    unknown = [token for token in request.prompt_ids if not 0 <= token < vocab_size]
    if unknown:
        raise InputError(
            f"the prompt has the token {unknown[0]}, but {target.name} has "
            f"{vocab_size} tokens, 0 to {vocab_size - 1}",
            hint="make the ids with the tokenizer of this model",
        )
    if room < 1:
        raise InputError(
            f"the prompt has {len(request.prompt_ids)} tokens; {target.name} holds "
            f"{target.max_context}, answer included",
            hint="shorten the prompt, or retrieve fewer passages",
        )
    detokenizer = Detokenizer(tokenizer)
    checker = StopChecker(request.params, target.eos_token_ids, detokenizer, room)
    capacity = len(request.prompt_ids) + min(request.params.max_tokens, room) + 1
    sampler = TokenSampler(
        request.params,
        prompt_length=len(request.prompt_ids),
        end_token_ids=target.eos_token_ids,
        processors=request.processors,
    )
    sampler.check(target.vocab_size)
    return Row(
        request,
        sampler,
        TokenHistory(request.prompt_ids, capacity),
        checker,
        trace=VerificationTrace() if request.num_traced else None,
    )
