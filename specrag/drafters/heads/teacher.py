"""A head run over a whole text at once, each position with what the target itself went on with."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specrag.drafters.heads.feature_head import FeatureHead
from specrag.models.kv_cache import KVCache
from specrag.models.masks import additive


@torch.no_grad()
def teacher_forced(
    head: FeatureHead, features: Sequence[torch.Tensor], embedded: torch.Tensor, depth: int = 1
) -> list[torch.Tensor]:
    """Returns what the LM head reads at every position and at every level of a draft.

    At level 0, position t has the target's state of position t and the token after it. At level d
    it has the head's own state of level d - 1 and the token d places further, as if the draft of
    d tokens had been right. As in drafting, a level sees the target's states up to where it
    began, and its own path: all positions draft at once without seeing each other's guesses.

    Args:
        head: The head.
        features: Of each of ``head.feature_layers``, ``[batch, n, target hidden]``.
        embedded: Embeddings of the tokens behind position 0, ``[batch, n + depth - 1, width]``:
            entry i is of token i + 1.
        depth: Levels, at least 1.

    Returns:
        For each level ``[batch, n, hidden]``; position t of level d says token t + d + 2.
    """
    assert depth >= 1, f"a head runs at least one level, got {depth}"
    states = head.fuse(features)
    batch, count = states.shape[:2]
    assert embedded.shape[1] == count + depth - 1, "each level needs the token of each position"
    device = states.device
    cache = KVCache(head.num_layers, batch, capacity=depth * count)
    positions = torch.arange(count, device=device).expand(batch, count)
    visible = torch.ones(count, count, dtype=torch.bool, device=device).tril()
    own = torch.eye(count, dtype=torch.bool, device=device)
    outputs = []
    for level in range(depth):
        cache.begin_pass(count, kept=level * count)
        read, states = head(
            states,
            embedded[:, level : level + count],
            positions + level,
            additive(visible.unsqueeze(0), states.dtype),
            cache,
        )
        outputs.append(read)
        visible = torch.cat([visible, own], dim=1)
    return outputs
