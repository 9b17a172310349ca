"""TrimmedHead: an LM head that names a part of the vocabulary."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class TrimmedHead(nn.Module):
    """An LM head that computes some tokens and calls the others impossible.

    Args:
        weight: ``[vocab, hidden]`` of a whole LM head.
        token_ids: The tokens to compute, ``[draft vocab]``.
        bias: ``[vocab]``, if it has one.

    Attributes:
        token_ids: As given.
        rows: The weight of these tokens, ``[draft vocab, hidden]``; no parameter, since it is
            another model's.
        bias: ``[draft vocab]``, or None.
    """

    def __init__(
        self, weight: torch.Tensor, token_ids: torch.Tensor, bias: torch.Tensor | None = None
    ) -> None:
        super().__init__()
        self.token_ids = token_ids.to(weight.device)
        self._vocab_size = len(weight)
        self.rows = weight.detach()[self.token_ids]
        self.bias = None if bias is None else bias.detach()[self.token_ids]

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Returns logits of the whole vocabulary, ``[..., vocab]``.

        Args:
            states: ``[..., hidden]``.
        """
        return self.widened(F.linear(states, self.rows, self.bias))

    def widened(self, found: torch.Tensor) -> torch.Tensor:
        """Returns logits of the whole vocabulary, ``[..., vocab]``.

        Args:
            found: Of the tokens that are computed, ``[..., draft vocab]``.
        """
        logits = found.new_full((*found.shape[:-1], self._vocab_size), -torch.inf)
        logits[..., self.token_ids] = found
        return logits
