"""DistillKind: a draft model made of a few layers of its target, taught the target's law."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from specrag.drafters.heads.projection import Projection
from specrag.errors import ConfigError
from specrag.models.slim import copied_layers, own_weights, save_slim, slim_model
from specrag.models.target import FINAL_NORM
from specrag.models.transformers_target import TransformersTarget
from specrag.training.batches import TrainingBatch
from specrag.training.kind import HeadKind, Trainee
from specrag.training.objective import Objective
from specrag.training.taught import Taught, WeighedTokens

_DEPTH = 4  # tokens of a draft whose acceptance is measured


class DistillObjective(nn.Module):
    """Brings a draft model's distribution near to the target's (Hinton et al., 2015).

    The divergence is the target's from the model's, over the tokens that the model can say, at
    the positions of answers.

    Args:
        slim: The draft model, see ``slim_model``.
        projection: The target's LM head, of the tokens that the model can say, in the precision
            of the features.
        weighed: Which tokens a batch of the training weighs; None weighs all.
    """

    def __init__(
        self, slim: Any, projection: Projection, weighed: WeighedTokens | None = None
    ) -> None:
        super().__init__()
        self._weighed = weighed
        self.slim = slim
        self._projection = projection
        own = own_weights(slim)
        slim.get_input_embeddings().requires_grad_(False)
        for parameter in own.values():
            parameter.requires_grad_(True)
        slim.eval()

    def train(self, mode: bool = True) -> DistillObjective:
        """Leaves the draft model as it drafts: nothing in it is dropped at random.

        Args:
            mode: Whether this is training; measuring weighs all tokens.
        """
        self.training = mode
        return self

    def forward(self, batch: TrainingBatch) -> Objective:
        """Returns the loss of a batch, and how many tokens in a row the model gets right.

        Args:
            batch: With the features behind the final norm.
        """
        rows, places = batch.answer[:, 1:].nonzero(as_tuple=True)
        embedded = self.slim.get_input_embeddings()(batch.token_ids).to(
            self._projection.weight.dtype
        )
        states = self.slim.get_decoder()(inputs_embeds=embedded, use_cache=False)
        weighed = self._weighed if self.training else None
        theirs = batch.features[FINAL_NORM][rows, places]
        taught = Taught.by(self._projection, theirs, weighed, int(batch.token_ids.sum()))
        logits = taught.projection.logits(states.last_hidden_state[rows, places])
        said = batch.token_ids[rows, places + 1]
        weight = self._projection.places(said) >= 0
        loss = (taught.losses(logits) * weight).sum() / weight.sum().clamp(min=1)
        shape = (batch.token_ids.shape[0], batch.token_ids.shape[1] + _DEPTH)
        right = torch.zeros(shape, device=logits.device)
        right[rows, places] = (taught.said(logits) == said).float()
        in_a_row = torch.stack([right[rows, places + depth] for depth in range(_DEPTH)]).cumprod(0)
        metrics = {f"accepted_{n}": float(v) for n, v in enumerate(in_a_row.sum(1).tolist())}
        return Objective(loss, {**metrics, "positions": float(len(rows))})


@dataclass(frozen=True, slots=True)
class DistillKind(HeadKind):
    """A draft model of a few layers.

    Attributes:
        num_layers: Its layers; it begins as as many of the target's, from the first to the last.
    """

    num_layers: int = 2

    def __post_init__(self) -> None:
        if self.num_layers < 1:
            raise ConfigError(f"num_layers must be at least 1, got {self.num_layers}")

    @property
    def name(self) -> str:  # type: ignore[override]
        """What it is called as a drafter."""
        return "draft"

    def layers(self, target: TransformersTarget) -> tuple[int, ...]:
        """Returns what the target's law is read off.

        Args:
            target: The target.
        """
        return (FINAL_NORM,)

    def begin(self, target: TransformersTarget, vocabulary: torch.Tensor, seed: int) -> Trainee:
        """Returns a new draft model.

        Args:
            target: Whose layers it begins with.
            vocabulary: Tokens that it can say.
            seed: Is not used: nothing in it is random.
        """
        slim = slim_model(target, self.num_layers, vocabulary)
        last = len(target.decoder_layers) - 1
        spread = torch.linspace(0, last, self.num_layers) if self.num_layers > 1 else [last]
        layers = [round(float(number)) for number in spread]
        copied_layers(target, slim, layers, torch.float32)
        projection = Projection.shared(target, vocabulary).to(dtype=torch.float32)
        objective = DistillObjective(slim, projection, WeighedTokens())
        return Trainee(objective, partial(_write, slim=slim, target=target))


def _write(folder: Path, *, slim: Any, target: TransformersTarget) -> None:
    save_slim(folder, slim, target, torch.bfloat16)
