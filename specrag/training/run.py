"""One training from files of text to a folder that a drafter reads."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specrag.errors import ConfigError
from specrag.home import home
from specrag.models.tokenizer import Tokenizer
from specrag.models.transformers_target import TransformersTarget
from specrag.training.beginning import draft_vocabulary
from specrag.training.data import DataSettings, TrainingData
from specrag.training.kind import HeadKind
from specrag.training.loop import Training, TrainingSettings

_WORK = "training"


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What a training takes besides its kind.

    Attributes:
        data: Which texts.
        training: How it learns.
        vocabulary: Tokens that it can say; those that the target says most.
        features: Folder for the target's states, which trainings on the same texts share; None
            for one in ``SPECRAG_HOME``.
    """

    data: DataSettings
    training: TrainingSettings = field(default_factory=TrainingSettings)
    vocabulary: int = 16384
    features: Path | None = None

    def __post_init__(self) -> None:
        if self.vocabulary < 1:
            raise ConfigError(f"vocabulary must be at least 1, got {self.vocabulary}")


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a training came to.

    Attributes:
        card: What the folder says of itself.
        history: The figures on the way, see ``Training.history``.
    """

    card: Mapping[str, Any]
    history: tuple[Mapping[str, Any], ...]


def run_training(
    kind: HeadKind,
    settings: RunSettings,
    target: TransformersTarget,
    tokenizer: Tokenizer,
    out: Path,
    *,
    progress: bool = False,
    stop: Callable[[], bool] | None = None,
) -> RunReport:
    """Trains, or goes on where an earlier run into the same folder was stopped.

    Args:
        kind: What is trained.
        settings: On what, and how.
        target: Whose text it learns.
        tokenizer: The target's.
        out: Folder for the result; what a restart needs lies in its ``training``.
        progress: Whether to show bars on standard error.
        stop: Asked after each step.

    Raises:
        InputError: A file cannot be read.
        ConfigError: A folder holds another training or features, or the target is packed.
    """
    if target.quantization != "none":
        raise ConfigError(
            f"{target.name} is packed as {target.quantization}, and a training begins from plain "
            "weights",
            hint="load the target with quantization none",
        )
    layers = kind.layers(target)
    folder = settings.features or _features_folder(target, layers)
    data = TrainingData.load(settings.data, target, tokenizer, layers, folder)
    data.store.fill(progress)
    vocabulary = kind.vocabulary(target)
    if vocabulary is None:
        texts = [data.texts[place] for place in data.train]
        vocabulary = draft_vocabulary(texts, settings.vocabulary, target.eos_token_ids)
    trainee = kind.begin(target, vocabulary.to(target.device), settings.training.seed)
    about = {"kind": repr(kind), "vocabulary": len(vocabulary)}
    training = Training(
        trainee.objective, data, settings.training, out / _WORK, target.device, about
    )
    history = training.run(progress=progress, stop=stop)
    trainee.write(out)
    card = {
        "kind": kind.name,
        "target": target.name,
        "fingerprint": target.fingerprint,
        "data": _data_card(settings, data),
        "vocabulary": len(vocabulary),
        "seed": settings.training.seed,
        "steps": f"{training.step} of {training.num_steps}",
        "seconds": round(training.seconds),
        "held_out": history[-1]["held_out"] if history else None,
    }
    if trainee.measure is not None:
        card.update(trainee.measure(training.held_out_batches()))
    return RunReport(card, tuple(history))


def _data_card(settings: RunSettings, data: TrainingData) -> dict[str, Any]:
    used = [data.texts[place] for place in data.train]
    return {
        "files": [path.name for path in settings.data.paths],
        "texts": len(used),
        "answer_tokens": sum(text.num_answer_tokens for text in used),
        "held_out_texts": len(data.held_out),
        "epochs": settings.training.epochs,
    }


def _features_folder(target: TransformersTarget, layers: tuple[int, ...]) -> Path:
    digest = hashlib.sha256(repr((target.fingerprint, layers)).encode())
    return home() / "features" / digest.hexdigest()[:16]
