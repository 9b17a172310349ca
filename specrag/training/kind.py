"""HeadKind: what can be trained: what it reads of the target, its loss, and its files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from specrag.models.transformers_target import TransformersTarget
from specrag.training.batches import TrainingBatch


class Trainee(NamedTuple):
    """Something that is trained.

    Attributes:
        objective: Returns the ``Objective`` of a batch; holds what learns.
        write: Writes what was learned into a folder, as a drafter reads it.
        measure: Returns, of batches that are held out, what its card should tell besides.
    """

    objective: nn.Module
    write: Callable[[Path], None]
    measure: Callable[[Iterable[TrainingBatch]], Mapping[str, Any]] | None = None


class HeadKind(ABC):
    """A kind of drafter that learns from a target.

    Attributes:
        name: What it is called as a drafter.
    """

    name: str

    def vocabulary(self, target: TransformersTarget) -> torch.Tensor | None:
        """Returns the tokens that it can say where they are given, ``[draft vocab]``.

        Args:
            target: Its target.

        Returns:
            None where they may be chosen.
        """
        return None

    @abstractmethod
    def layers(self, target: TransformersTarget) -> tuple[int, ...]:
        """Returns what of the target it is trained on, see ``TargetModel``.

        Args:
            target: The target.
        """

    @abstractmethod
    def begin(self, target: TransformersTarget, vocabulary: torch.Tensor, seed: int) -> Trainee:
        """Returns a new one.

        Args:
            target: Whose text it learns; its weights stay as they are.
            vocabulary: Tokens that it can say, ``[draft vocab]`` in ascending order.
            seed: Of what is random in it.
        """
