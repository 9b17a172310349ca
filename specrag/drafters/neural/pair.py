"""DraftPair: a draft model beside its target, and what the two have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specrag.drafters.neural.transcript import Translator
from specrag.drafters.neural.vocabulary import SharedVocabulary
from specrag.errors import ConfigError
from specrag.models.devices import DTYPES
from specrag.models.embedded import ModelSource
from specrag.models.loader import load_target
from specrag.models.slim import SLIM, load_slim
from specrag.models.target import TargetModel
from specrag.models.tokenizer import Tokenizer

Parts = tuple[TargetModel, Tokenizer]
"""A model and its tokenizer."""

Load = Callable[[TargetModel, Tokenizer], Parts]
"""Loads a draft model, given its target and the target's tokenizer."""


@dataclass(frozen=True, slots=True)
class DraftPair:
    """A draft model that fits a target.

    Attributes:
        target: Whose tokens are guessed.
        tokenizer: The target's.
        model: The draft model.
        vocabulary: What both have in common.
        translator: Encodes the target's text for the draft model; None where nothing differs.
    """

    target: TargetModel
    tokenizer: Tokenizer
    model: TargetModel
    vocabulary: SharedVocabulary
    translator: Translator | None

    @classmethod
    def of(cls, target: TargetModel, tokenizer: Tokenizer, parts: Parts) -> DraftPair:
        """Matches a draft model with a target.

        Args:
            target: Whose tokens are guessed.
            tokenizer: The target's.
            parts: The draft model and its tokenizer.

        Raises:
            ConfigError: The model cannot roll back, or the tokenizers have too little in common.
        """
        model, model_tokenizer = parts
        if model.no_speculation:
            raise ConfigError(
                f"{model.name!r} cannot draft: {model.no_speculation}",
                hint="take a draft model with attention layers only, or draft by 'suffix'",
            )
        vocabulary = SharedVocabulary(target, tokenizer, model, model_tokenizer)
        translator = None
        if not vocabulary.is_identity:
            translator = Translator(vocabulary, tokenizer, model_tokenizer)
        return cls(target, tokenizer, model, vocabulary, translator)


def load_beside(source: ModelSource, target: TargetModel, tokenizer: Tokenizer) -> Parts:
    """Loads a draft model as its target is: in its dtype or packed, and on its device.

    Args:
        source: Where the model lies.
        target: A loaded target.
        tokenizer: The target's.

    Raises:
        ModelError: It cannot be loaded.
    """
    folder = Path(source.path)
    if (folder / SLIM).is_file():
        return load_slim(folder, target), tokenizer
    packs, name = target.quantization != "none", str(target.dtype).removeprefix("torch.")
    model = load_target(
        source,
        source.name,
        dtype=name if name in DTYPES and not packs else "auto",
        device=str(target.device),
        quantization="auto" if packs else "none",
    )
    return model, Tokenizer.load(source)
