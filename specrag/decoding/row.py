"""One row of a batch: what was asked, what it has said so far, and when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from specrag.decoding.sampling import SamplingParams, TokenHistory, TokenSampler
from specrag.decoding.stats import DecodingStats
from specrag.decoding.stopping import FinishReason, StopChecker
from specrag.decoding.trace import VerificationTrace, first_child, record_token
from specrag.decoding.tree import DraftTree
from specrag.decoding.verify import Verification, verify


@dataclass(frozen=True, slots=True)
class DecodingRequest:
    """One row of a batch.

    Attributes:
        prompt_ids: Token ids of the prompt, at least one.
        params: How to choose tokens and when to end.
        passages: Texts that the answer may copy from, as token ids, for drafters only.
        num_traced: Last prompt tokens to score; 0 records no trace at all.
    """

    prompt_ids: tuple[int, ...]
    params: SamplingParams
    passages: tuple[tuple[int, ...], ...] = ()
    num_traced: int = 0


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
        text: Text emitted so far.
        stats: Counters.
        trace: What the passes saw; None unless asked for.
    """

    request: DecodingRequest
    sampler: TokenSampler
    history: TokenHistory
    checker: StopChecker
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    text: str = ""
    stats: DecodingStats = field(default_factory=DecodingStats)
    trace: VerificationTrace | None = None

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the row ended, None while it runs."""
        return self.checker.finish_reason

    def take(
        self, tree: DraftTree, logits: torch.Tensor, argmax: Sequence[int]
    ) -> tuple[Verification, RowUpdate]:
        """Verifies a draft and appends what the target says.

        Args:
            tree: The draft below the row's last token.
            logits: ``[1 + len(tree), vocab]``, the root first.
            argmax: The largest logit of each of these nodes.

        Returns:
            The verification, whole, and the part of it that belongs to the answer.
        """
        nodes: list[int] = []

        def choose(node: int, accepted: tuple[int, ...]) -> int:
            nodes.append(node)
            if accepted:
                self.history.append(accepted[-1])
            if self.sampler.is_plain_argmax:
                return argmax[node + 1]
            return self.sampler.choose(logits[node + 1], self.history.view(), self.history.length)

        verification = verify(tree, choose)
        self.history.append(verification.next_token)
        tokens = verification.token_ids
        kept, text = self.checker.push(tokens)
        self.history.truncate(self.history.length - len(tokens) + kept)
        self._record(tree, logits, nodes[:kept], tokens[:kept])
        self.text += text
        return verification, RowUpdate(tokens[:kept], text, self.finish_reason)

    def _record(
        self, tree: DraftTree, logits: torch.Tensor, nodes: Sequence[int], tokens: Sequence[int]
    ) -> None:
        self.token_ids.extend(tokens)
        rows = logits[[node + 1 for node in nodes]].float()
        index = torch.tensor(tokens, device=logits.device).unsqueeze(1)
        chosen = rows.gather(1, index).squeeze(1) - rows.logsumexp(-1)
        self.logprobs.extend(chosen.tolist())
        if self.trace is not None:
            for node, token, row in zip(nodes, tokens, rows, strict=True):
                record = record_token(row, token, first_child(tree, node))
                self.trace.tokens.append(record)
