"""Taught: what the target says at some positions, over the tokens that training weighs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch

from specrag.drafters.heads.projection import Projection
from specrag.errors import ConfigError


@dataclass(frozen=True, slots=True)
class WeighedTokens:
    """Which tokens of the draft vocabulary a step weighs; the LM head is half of its work.

    "Sampled softmax" (Jean et al., 2015): the tokens that the target finds likely somewhere in
    the batch are all there, the others are stood for by a few drawn at random, each with the
    weight of those that it stands for.

    Attributes:
        likely: Most of the likely tokens.
        others: How many of the others are drawn.
    """

    likely: int = 1536
    others: int = 512

    def __post_init__(self) -> None:
        for name in ("likely", "others"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")


class Taught(NamedTuple):
    """What the target says at some positions.

    Attributes:
        projection: The LM head, of the tokens that are weighed.
        places: Where they stand in the draft vocabulary, ``[tokens]``; None for all of it.
        probs: The target's distribution over them, ``[positions, tokens]``.
        offsets: Added to logits before the normaliser is taken: the logarithm of how many tokens
            each one stands for, ``[tokens]``; None where each stands for itself.
    """

    projection: Projection
    places: torch.Tensor | None
    probs: torch.Tensor
    offsets: torch.Tensor | None

    @classmethod
    @torch.no_grad()
    def by(
        cls,
        projection: Projection,
        states: torch.Tensor,
        weighed: WeighedTokens | None = None,
        seed: int = 0,
    ) -> Taught:
        """Reads it off the target's states.

        Args:
            projection: The target's LM head, of the draft vocabulary.
            states: Behind the final norm, ``[positions, hidden]``.
            weighed: Which tokens to weigh; None weighs all.
            seed: The same seed draws the same tokens.
        """
        probs = torch.softmax(projection.logits(states), dim=-1)
        size = probs.shape[-1]
        if weighed is None or weighed.likely + weighed.others >= size:
            return cls(projection, None, probs, None)
        order = probs.sum(0).argsort(descending=True)
        likely, rest = order[: weighed.likely], order[weighed.likely :]
        drawn = torch.randperm(len(rest), generator=torch.Generator().manual_seed(seed))
        others = rest[drawn[: weighed.others].to(rest.device)]
        places = torch.cat([likely, others])
        offsets = probs.new_zeros(len(places))
        offsets[len(likely) :] = math.log(len(rest) / len(others))
        found = probs[:, places]
        found[:, len(likely) :] = 0.0
        found = found / found.sum(-1, keepdim=True)
        return cls(projection.part(places), places, found, offsets)

    def losses(self, logits: torch.Tensor, positions: torch.Tensor | None = None) -> torch.Tensor:
        """Returns the cross entropy of each position against what the target says there.

        Args:
            logits: Of the tokens that are weighed, ``[positions, tokens]``.
            positions: Which ones they are of; None for all.
        """
        probs = self.probs if positions is None else self.probs[positions]
        shifted = logits if self.offsets is None else logits + self.offsets
        normaliser = torch.logsumexp(shifted, dim=-1)
        return normaliser - (probs * logits).sum(-1)

    def said(self, logits: torch.Tensor) -> torch.Tensor:
        """Returns the likeliest token of each position.

        Args:
            logits: Of the tokens that are weighed, ``[..., tokens]``.
        """
        return self.projection.token_ids[logits.detach().argmax(-1)]
