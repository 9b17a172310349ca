"""What a verification pass saw: the raw material of the retrieval gate's signals."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from specrag.decoding.tree import DraftTree


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """The target's view of one emitted token, from unprocessed logits.

    Attributes:
        token_id: The token.
        logprob: Its natural log-probability.
        entropy: Entropy of the target's distribution, in nats.
        margin: Probability of the most probable token minus that of the second.
        draft_logprob: Log-probability of the token drafted for this position, None without one.
        drafted_token: That token.
    """

    token_id: int
    logprob: float
    entropy: float
    margin: float
    draft_logprob: float | None = None
    drafted_token: int | None = None

    @property
    def agreed(self) -> bool | None:
        """Whether the drafted token is the emitted one, None without a draft."""
        return None if self.drafted_token is None else self.drafted_token == self.token_id


@dataclass(slots=True)
class VerificationTrace:
    """The records of one row.

    Attributes:
        prompt_logprobs: Log-probability of each of the last prompt tokens given those before it;
            as many as prefill was asked for.
        tokens: One record for each emitted token.
    """

    prompt_logprobs: list[float] = field(default_factory=list)
    tokens: list[TokenRecord] = field(default_factory=list)


def record_token(logits: torch.Tensor, token_id: int, draft: int | None) -> TokenRecord:
    """Measures one position.

    Args:
        logits: ``[vocab]``, unprocessed.
        token_id: The token that was emitted.
        draft: The token that had been drafted for this position, if any.
    """
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    probs = log_probs.exp()
    top = probs.topk(2).values
    return TokenRecord(
        token_id=token_id,
        logprob=float(log_probs[token_id]),
        # Not as -(probs * log_probs): an excluded token would make it 0 times minus infinity.
        entropy=float(torch.special.entr(probs).sum()),
        margin=float(top[0] - top[1]),
        draft_logprob=None if draft is None else float(log_probs[draft]),
        drafted_token=draft,
    )


def log_norms(logits: torch.Tensor) -> torch.Tensor:
    """Returns the logarithm of the sum of exponentials of each row, one row at a time.

    Threads share a long sum out in another way when there are more rows, and its last bits
    change with it; a log-probability must not depend on how many tokens a round brought.

    Args:
        logits: ``[positions, vocab]``.

    Returns:
        ``[positions]``.
    """
    return torch.stack([row.logsumexp(-1) for row in logits])


def top_logprobs(logits: torch.Tensor, k: int) -> list[list[tuple[int, float]]]:
    """Finds the most probable tokens of several positions.

    Args:
        logits: ``[positions, vocab]``, unprocessed.
        k: Most tokens a position.

    Returns:
        For each position its tokens with their natural log-probabilities, most probable first;
        tokens that the model excludes are left out.
    """
    scores = logits.float()
    top = scores.topk(min(k, scores.shape[-1]), dim=-1)
    log_probs = top.values - log_norms(scores).unsqueeze(1)
    return [
        [(token, value) for token, value in zip(tokens, values, strict=True) if value > -math.inf]
        for tokens, values in zip(top.indices.tolist(), log_probs.tolist(), strict=True)
    ]


def first_child(tree: DraftTree, node: int) -> int | None:
    """Returns the token that the drafter ranked first below a node, if it drafted any.

    Args:
        tree: The draft.
        node: A node, or ``ROOT``.
    """
    for token, parent in zip(tree.token_ids, tree.parents, strict=True):
        if parent == node:
            return token
    return None
