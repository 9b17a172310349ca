"""MedusaObjective: what Medusa heads are trained on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from specrag.drafters.heads.medusa import MedusaHeads
from specrag.drafters.heads.projection import Projection
from specrag.errors import ConfigError
from specrag.models.target import FINAL_NORM
from specrag.training.batches import TrainingBatch
from specrag.training.objective import Objective


@dataclass(frozen=True, slots=True)
class MedusaLossSettings:
    """How the heads are weighed.

    Attributes:
        decay: Weight of a head relative to the one before, as in "Medusa" (Cai et al., 2024).
    """

    decay: float = 0.8

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
        logits = self.heads.logits(states[rows, starts], self._projection)
        places = self._projection.places(batch.token_ids)
        agreed = torch.ones(len(rows), dtype=torch.bool, device=states.device)
        metrics: dict[str, float] = {"positions": float(len(rows))}
        total, weights = logits.sum() * 0.0, 0.0
        for head in range(self.heads.num_heads):
            ahead = (starts + 2 + head).clamp(max=states.shape[1] - 1)
            tested = (starts + 2 + head == ahead) & batch.answer[rows, ahead]
            wanted = torch.where(tested, places[rows, ahead], -1)
            right = (logits[:, head].detach().argmax(-1) == wanted) & (wanted >= 0)
            agreed = agreed & right
            metrics[f"right_{head}"] = float(right.sum())
            metrics[f"accepted_{head}"] = float(agreed.sum())
            named = wanted >= 0
            teacher = states[rows[named], ahead[named] - 1]
            weight = self.settings.decay**head
            total = total + weight * self._loss(logits[named, head], teacher)
            weights += weight
        return Objective(total / weights, metrics)

    def _loss(self, logits: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        """The mean cross entropy against what the target says of its own states."""
        with torch.no_grad():
            target_probs = torch.softmax(self._projection.logits(teacher), dim=-1)
        loss = -(target_probs * torch.log_softmax(logits, dim=-1)).sum(-1)
        return loss.sum() / max(1, len(loss))
