"""What a verification pass saw: the raw material of the retrieval gate's signals."""

from __future__ import annotations

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
    """

    token_id: int
    logprob: float
    entropy: float
    margin: float
    draft_logprob: float | None = None


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
        entropy=float(-(probs * log_probs).sum()),
        margin=float(top[0] - top[1]),
        draft_logprob=None if draft is None else float(log_probs[draft]),
    )


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
