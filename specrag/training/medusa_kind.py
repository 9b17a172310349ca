"""MedusaKind: Medusa heads as something to train."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from specrag.drafters.checkpoints.writer import write_head
from specrag.drafters.heads.accuracy import ReadText, measured_accuracies
from specrag.drafters.heads.medusa import MedusaConfig, MedusaHeads
from specrag.drafters.heads.projection import Projection
from specrag.errors import ConfigError
from specrag.models.target import FINAL_NORM
from specrag.models.transformers_target import TransformersTarget
from specrag.training.batches import TrainingBatch
from specrag.training.beginning import given_head
from specrag.training.kind import HeadKind, Trainee
from specrag.training.medusa import MedusaLossSettings, MedusaObjective


@dataclass(frozen=True, slots=True)
class MedusaKind(HeadKind):
    """Medusa heads that read the target's LM head.

    Attributes:
        num_heads: How many tokens they look ahead, beyond the one that the target says itself.
        num_layers: Residual blocks of each head.
        loss: How the heads are weighed.
        begin_from: Heads to train further, a folder or a hub name; their shape and their tokens
            are kept. Empty begins anew.
    """

    num_heads: int = 4
    num_layers: int = 1
    loss: MedusaLossSettings = field(default_factory=MedusaLossSettings)
    begin_from: str = ""

    def __post_init__(self) -> None:
        for name in ("num_heads", "num_layers"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")

    @property
    def name(self) -> str:  # type: ignore[override]
        """What it is called as a drafter."""
        return "medusa"

    def vocabulary(self, target: TransformersTarget) -> torch.Tensor | None:
        """Returns the tokens of the heads that it begins from, if it does.

        Args:
            target: Their target.
        """
        if not self.begin_from:
            return None
        return given_head(self.begin_from, self.name, target).token_ids

    def layers(self, target: TransformersTarget) -> tuple[int, ...]:
        """Returns what the heads read.

        Args:
            target: The target.
        """
        return (FINAL_NORM,)

    def begin(self, target: TransformersTarget, vocabulary: torch.Tensor, seed: int) -> Trainee:
        """Returns new heads, which at first say what the target says next.

        Args:
            target: Whose states they read.
            vocabulary: Tokens that they can say.
            seed: Of what is random in them.
        """
        if self.begin_from:
            given = given_head(self.begin_from, self.name, target).head
            assert isinstance(given, MedusaHeads), "its family was checked"
            heads = given
        else:
            heads = self._new(target, len(vocabulary), seed)
        projection = Projection.shared(target, vocabulary).to(dtype=torch.float32)
        objective = MedusaObjective(heads, projection, self.loss)
        return Trainee(
            objective,
            partial(_write, heads=heads, token_ids=vocabulary),
            partial(_measure, heads=heads, projection=projection),
        )

    def _new(self, target: TransformersTarget, num_tokens: int, seed: int) -> MedusaHeads:
        config = MedusaConfig(
            hidden_size=int(target.model.config.get_text_config().hidden_size),
            vocab_size=target.vocab_size,
            num_heads=self.num_heads,
            num_layers=self.num_layers,
            draft_vocab_size=num_tokens,
        )
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return MedusaHeads(config).to(target.device)


def _measure(
    batches: Iterable[TrainingBatch], *, heads: MedusaHeads, projection: Projection
) -> Mapping[str, Any]:
    """How often each rank of each head is right, which the best static trees follow from."""
    texts = (ReadText(b.features[FINAL_NORM], b.token_ids, b.answer) for b in batches)
    return {"accuracies": measured_accuracies(heads, projection, texts)}


def _write(folder: Path, *, heads: MedusaHeads, token_ids: torch.Tensor) -> None:
    write_head(folder, heads, token_ids)
