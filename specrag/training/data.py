"""TrainingData: the texts of a training, their features, and which of them only measure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specrag.errors import InputError
from specrag.models.target import TargetModel
from specrag.models.tokenizer import Tokenizer
from specrag.training.features import FeatureStore
from specrag.training.texts import TrainingText, held_out, read_texts

_ORDER_SEED = 0


@dataclass(frozen=True, slots=True)
class DataSettings:
    """Which texts are used, and how they are split.

    Attributes:
        paths: Files of texts.
        max_tokens: Most tokens of a text.
        held_out: Share of the prompts that only measure.
        limit: Most texts to train on; None for all. They are drawn at random, the same ones each
            time, so that a smaller training sees a part of the larger one's.
    """

    paths: tuple[Path, ...]
    max_tokens: int = 640
    held_out: float = 0.02
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class TrainingData:
    """What is trained on, and what only measures.

    Attributes:
        texts: All of them, those that only measure first.
        store: Their features.
        train: Places of the texts to train on.
        held_out: Places of those that only measure.
    """

    texts: Sequence[TrainingText]
    store: FeatureStore
    train: Sequence[int]
    held_out: Sequence[int]

    @classmethod
    def load(
        cls,
        settings: DataSettings,
        target: TargetModel,
        tokenizer: Tokenizer,
        layers: Sequence[int],
        folder: Path,
    ) -> TrainingData:
        """Reads the texts and opens the store of their features, which may be empty yet.

        Args:
            settings: Which texts.
            target: Whose features they have.
            tokenizer: The target's.
            layers: What of the target.
            folder: Of the features; several trainings may share it.

        Raises:
            InputError: A file cannot be read, or one side of the split would be empty.
            ConfigError: The folder holds the features of another target or of other layers.
        """
        texts = read_texts(
            settings.paths,
            tokenizer,
            max_tokens=min(settings.max_tokens, target.max_context),
            vocab_size=target.vocab_size,
        )
        train, measured = held_out(texts, settings.held_out)
        if not train or not measured:
            lost = "nothing is left to train on" if not train else "no text is held out"
            raise InputError(
                f"{lost} of {len(texts)} texts, of which a share of {settings.held_out:g} shall be "
                "held out",
                hint="make a larger corpus: specrag train corpus",
            )
        random.Random(_ORDER_SEED).shuffle(train)
        texts = [*measured, *train[: settings.limit]]
        store = FeatureStore(folder, target, texts, layers)
        places = range(len(texts))
        return cls(texts, store, places[len(measured) :], places[: len(measured)])
