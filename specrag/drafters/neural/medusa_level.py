"""MedusaLevel: what one Medusa head costs, which is what a level of a draft takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from specrag.drafters.heads.medusa import MedusaHeads
from specrag.drafters.heads.projection import Projection


@dataclass(frozen=True, slots=True)
class MedusaLevel:
    """One head and its logits: a draft of k levels computes k heads, in one pass.

    Attributes:
        heads: The heads.
        projection: Names their tokens.
    """

    heads: MedusaHeads
    projection: Projection

    @property
    def identity(self) -> tuple[object, ...]:
        """What its cost depends on."""
        weight = self.projection.weight
        return "MedusaHeads", repr(self.heads.config), len(self.projection.token_ids), weight.dtype

    def prepare(self) -> Callable[[], object]:
        """Returns the evaluation of one head over one state."""
        width, weight = self.heads.config.hidden_size, self.projection.weight
        state = torch.zeros(1, width, device=weight.device, dtype=weight.dtype)

        @torch.inference_mode()
        def evaluate() -> object:
            return self.projection.logits(self.heads(state, 1))[0, 0, 0].item()

        return evaluate
