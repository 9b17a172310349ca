"""How often the token of each rank is right, head by head: what a static tree is chosen by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch

from specrag.drafters.heads.medusa import MedusaHeads
from specrag.drafters.heads.projection import Projection

NUM_RANKS = 10
"""Ranks to measure; trees have fewer alternatives."""

Accuracies = tuple[tuple[float, ...], ...]
"""``accuracies[head][rank]``: the share of positions whose token the head has at that rank."""

_AT_ONCE = 512  # positions: of all heads and tokens of the vocabulary there are logits


class ReadText(NamedTuple):
    """Text with the target's states.

    Attributes:
        states: Behind the final norm, ``[batch, tokens, hidden]``.
        token_ids: ``[batch, tokens]``.
        answer: ``[batch, tokens]`` bool: which tokens the target itself said.
    """

    states: torch.Tensor
    token_ids: torch.Tensor
    answer: torch.Tensor


@torch.inference_mode()
def measured_accuracies(
    heads: MedusaHeads,
    projection: Projection,
    texts: Iterable[ReadText],
    num_ranks: int = NUM_RANKS,
) -> Accuracies:
    """Returns how often each rank of each head is right, the text being known until there.

    Args:
        heads: In the dtype of the states.
        projection: Of the tokens that they name; one that they cannot name is never right.
        texts: That the target said.
        num_ranks: Ranks to measure.
    """
    count = heads.num_heads
    right = torch.zeros(count, num_ranks, dtype=torch.long)
    tested = torch.zeros(count, dtype=torch.long)
    for text in texts:
        places = projection.places(text.token_ids)
        rows, starts = text.answer[:, 2:].nonzero(as_tuple=True)
        for first in range(0, len(rows), _AT_ONCE):
            row, start = rows[first : first + _AT_ONCE], starts[first : first + _AT_ONCE]
            logits = heads.logits(text.states[row, start], projection)
            for head in range(count):
                inside = start + 2 + head < text.token_ids.shape[1]
                ahead = start[inside] + 2 + head
                counts = text.answer[row[inside], ahead]
                wanted = places[row[inside], ahead][counts]
                tested[head] += len(wanted)
                found = _ranks(logits[inside][counts][:, head], wanted)
                right[head] += torch.bincount(found, minlength=num_ranks)[:num_ranks].cpu()
    shares = right.double() / tested.clamp(min=1).unsqueeze(1)
    return tuple(tuple(row) for row in shares.tolist())


def _ranks(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """The rank of each wanted token that can be named, 0 for the likeliest."""
    known = wanted >= 0
    logits, wanted = logits[known], wanted[known]
    own = logits.gather(1, wanted.unsqueeze(1))
    # Of equal logits the earlier stands first, as in the trees.
    before = torch.arange(logits.shape[1], device=logits.device) < wanted.unsqueeze(1)
    return ((logits > own) | ((logits == own) & before)).sum(1)
