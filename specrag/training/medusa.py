"""MedusaObjective: what Medusa heads are trained on."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import nn

from specrag.drafters.heads.medusa import MedusaHeads
from specrag.drafters.heads.projection import Projection
from specrag.errors import ConfigError
from specrag.models.target import FINAL_NORM
from specrag.training.batches import TrainingBatch
from specrag.training.objective import Objective
from specrag.training.taught import Taught, WeighedTokens


@dataclass(frozen=True, slots=True)
class MedusaLossSettings:
    """How the heads are weighed.

    Attributes:
        decay: Weight of a head relative to the one before, as in "Medusa" (Cai et al., 2024).
        weighed: Which tokens a batch of the training weighs; None weighs the whole draft
            vocabulary, as measuring always does.
    """

    decay: float = 0.8
    weighed: WeighedTokens | None = field(default_factory=WeighedTokens)

    def __post_init__(self) -> None:
        if not 0 < self.decay <= 1:
            raise ConfigError(f"decay must be above 0 and at most 1, got {self.decay}")


class MedusaObjective(nn.Module):
    """Teaches each head the target's own distribution, as many places ahead as it looks.

    The authors train on the tokens alone. The target's distribution of the same place, read off
    its states, says more for the same text; positions whose token the heads cannot name are left
    out of the loss, but count as wrong.

    Args:
        heads: To train, in the precision of the features.
        projection: The target's LM head, of the tokens that the heads name, in the same
            precision; not trained.
        settings: Weights of the loss.
    """

    def __init__(
        self,
        heads: MedusaHeads,
        projection: Projection,
        settings: MedusaLossSettings | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.settings = settings or MedusaLossSettings()
        self._projection = projection

    def forward(self, batch: TrainingBatch) -> Objective:
        """Returns the loss of a batch, and how often heads were right.

        Args:
            batch: With the features behind the final norm.

        Returns:
            The mean over positions, heads weighed; ``right_i`` counts where head i was right, and
            ``accepted_i`` where it and all before it were.
        """
        states = batch.features[FINAL_NORM]
        rows, starts = batch.answer[:, 2:].nonzero(as_tuple=True)
        taught = self._taught(batch, rows, starts)
        logits = self.heads.logits(states[rows, starts], taught.projection)
        agreed = torch.ones(len(rows), dtype=torch.bool, device=states.device)
        metrics: dict[str, float] = {"positions": float(len(rows))}
        total, weights = logits.sum() * 0.0, 0.0
        # Where in the list of positions each place of a text stands.
        numbers = torch.zeros(batch.answer.shape, dtype=torch.long, device=states.device)
        numbers[rows, starts] = torch.arange(len(rows), device=states.device)
        for head in range(self.heads.num_heads):
            ahead = (starts + 2 + head).clamp(max=states.shape[1] - 1)
            tested = (starts + 2 + head == ahead) & batch.answer[rows, ahead]
            said = batch.token_ids[rows, ahead]
            named = tested & (self._projection.places(said) >= 0)
            right = (taught.said(logits[:, head]) == said) & named
            agreed = agreed & right
            metrics[f"right_{head}"] = float(right.sum())
            metrics[f"accepted_{head}"] = float(agreed.sum())
            # What is ahead by so much is what the place so much later says next but one.
            later = numbers[rows[named], starts[named] + head]
            loss = taught.losses(logits[named, head], later).sum() / max(1, len(later))
            weight = self.settings.decay**head
            total = total + weight * loss
            weights += weight
        return Objective(total / weights, metrics)

    def _taught(self, batch: TrainingBatch, rows: torch.Tensor, starts: torch.Tensor) -> Taught:
        """What the target says behind the token that follows each place."""
        theirs = batch.features[FINAL_NORM][rows, starts + 1]
        # LM heads of their own have no rows for a part of the tokens that they name.
        weighs_some = self.training and not self.heads.config.own_lm_head
        weighed = self.settings.weighed if weighs_some else None
        return Taught.by(self._projection, theirs, weighed, int(batch.token_ids.sum()))
