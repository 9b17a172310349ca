"""EagleKind: EAGLE heads of all generations as something to train."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

from specrag.drafters.checkpoints.writer import write_head
from specrag.drafters.heads.config import default_feature_layers
from specrag.drafters.heads.eagle import EagleHead
from specrag.drafters.heads.eagle3 import Eagle3Head
from specrag.drafters.heads.projection import Projection
from specrag.drafters.heads.surroundings import embedding_of
from specrag.errors import ConfigError
from specrag.models.target import FINAL_NORM
from specrag.models.transformers_target import TransformersTarget
from specrag.training.beginning import given_head, new_eagle, new_eagle3
from specrag.training.eagle import EagleLossSettings, EagleObjective
from specrag.training.kind import HeadKind, Trainee

GENERATIONS = (2, 3)
_FEWEST_LAYERS = 4


@dataclass(frozen=True, slots=True)
class EagleKind(HeadKind):
    """An EAGLE head.

    Attributes:
        generation: 3 for EAGLE-3; 2 for the head that EAGLE-1 and EAGLE-2 share.
        num_layers: Its decoder layers.
        loss: How the levels of a draft are weighed.
        begin_from: A head to train further, a folder or a hub name; its shape and its tokens are
            kept. Empty begins anew.
    """

    generation: int = 3
    num_layers: int = 1
    loss: EagleLossSettings = field(default_factory=EagleLossSettings)
    begin_from: str = ""

    def __post_init__(self) -> None:
        if self.generation not in GENERATIONS:
            raise ConfigError(
                f"generation must be 2 or 3, got {self.generation}",
                hint="heads of EAGLE-1 and EAGLE-2 are the same, and are called 2 here",
            )
        if self.num_layers < 1:
            raise ConfigError(f"num_layers must be at least 1, got {self.num_layers}")

    @property
    def name(self) -> str:  # type: ignore[override]
        """What it is called as a drafter."""
        return "eagle3" if self.generation == 3 else "eagle"

    def vocabulary(self, target: TransformersTarget) -> torch.Tensor | None:
        """Returns the tokens of the head that it begins from, if it does.

        Args:
            target: Its target.
        """
        if not self.begin_from:
            return None
        return given_head(self.begin_from, self.name, target).token_ids

    def layers(self, target: TransformersTarget) -> tuple[int, ...]:
        """Returns what is fused, and what the answer is read off.

        Args:
            target: The target.

        Raises:
            ConfigError: It has too few layers for an EAGLE-3 head.
        """
        if self.begin_from:
            read = given_head(self.begin_from, self.name, target).head.feature_layers
            return tuple(dict.fromkeys((*read, FINAL_NORM)))
        if self.generation != 3:
            return (FINAL_NORM,)
        count = len(target.decoder_layers)
        if count < _FEWEST_LAYERS:
            raise ConfigError(
                f"an EAGLE-3 head reads three layers of a target with {_FEWEST_LAYERS} or more; "
                f"{target.name} has {count}",
                hint="train one of generation 2",
            )
        return (*default_feature_layers(count), FINAL_NORM)

    def begin(self, target: TransformersTarget, vocabulary: torch.Tensor, seed: int) -> Trainee:
        """Returns a new head.

        Args:
            target: Whose states it reads.
            vocabulary: Tokens that it can say.
            seed: Of its weights.
        """
        head: EagleHead | Eagle3Head
        if self.begin_from:
            given = given_head(self.begin_from, self.name, target).head
            assert isinstance(given, EagleHead | Eagle3Head), "its family was checked"
            head = given
        elif self.generation == 3:
            head = new_eagle3(target, vocabulary, num_layers=self.num_layers, seed=seed)
        else:
            head = new_eagle(target, num_layers=self.num_layers, seed=seed)
        embed = embedding_of(head, target)
        projection = Projection.shared(target, vocabulary).to(dtype=torch.float32)
        objective = EagleObjective(head.to(target.device), embed, projection, self.loss)
        return Trainee(objective, partial(_write, head=head, token_ids=vocabulary))


def _write(folder: Path, *, head: EagleHead | Eagle3Head, token_ids: torch.Tensor) -> None:
    write_head(folder, head, token_ids)
