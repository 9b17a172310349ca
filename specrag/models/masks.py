"""Attention masks of a pass over trees: which committed and pending slots a node attends to."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def visible_slots(
    visible: torch.Tensor,
    depths: torch.Tensor,
    lengths: Sequence[int],
    window: int | None = None,
    num_slots: int | None = None,
) -> torch.Tensor:
    """Returns which slots of the cache each node attends to.

    A node attends to the committed slots of its own row and, among the pending ones, to its
    ancestors and itself. A window counts positions in the text, not slots: the nodes of a tree
    lie side by side in the cache. How far an ancestor lies back is the number of ancestors after
    it, because every path is stored from the root down.

    Args:
        visible: ``[batch, nodes, pending]`` bool, the nodes of the pass being the last pending.
        depths: ``[batch, nodes]`` int64, each node's position behind the row's committed tokens.
        lengths: Committed tokens of each row.
        window: Only slots nearer than this many positions are attended to; None for all.
        num_slots: Slots that the pass reads; by default those that are in use.

    Returns:
        ``[batch, nodes, num_slots]`` bool.
    """
    batch, nodes, pending = visible.shape
    starts = torch.tensor(lengths, device=visible.device).view(batch, 1, 1)
    used = max(lengths) + pending
    slots = torch.arange(used if num_slots is None else num_slots, device=visible.device)
    allowed = (slots < starts).expand(batch, nodes, -1)
    if window is not None:
        positions = starts + depths.unsqueeze(2)
        allowed = allowed & (slots > positions - window)
        rank = visible.cumsum(2)
        visible = visible & (rank[:, :, -1:] - rank < window)
    places = (starts + torch.arange(pending, device=visible.device)).expand(batch, nodes, -1)
    return allowed.scatter(2, places, visible)


def additive(allowed: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Turns a mask of allowed slots into what is added to attention scores.

    Args:
        allowed: ``[batch, nodes, slots]`` bool.
        dtype: Of the scores.

    Returns:
        ``[batch, 1, nodes, slots]``.
    """
    mask = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    # The lowest finite value, not -inf: a row of -inf only would give NaN.
    return mask.masked_fill_(~allowed, torch.finfo(dtype).min).unsqueeze(1)
