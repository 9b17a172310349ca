"""What a question-answering run does: everything that its figures depend on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from specrag.decoding.sampling import SamplingParams
from specrag.errors import ConfigError
from specrag.evaluation.datasets.item import EvalDataset
from specrag.rag.config import MODES, check_mode
from specrag.rag.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class QaSettings:
    """Settings of a run.

    Attributes:
        modes: Those to report, side by side.
        batch_size: Questions that are decoded together.
        seed: Of the sample of questions, of sampling tokens and of intervals.
        max_tokens: Most tokens of an answer; None takes the pipeline's.
        k: Passages to look up; None takes the pipeline's.
        cross_fit: Whether mode ``auto`` is decided by gates fitted on the other questions of the
            run, each question by one that has not seen it, instead of by the pipeline's gate.
        run_code: Whether answers that are programs are run.
    """

    modes: tuple[str, ...] = MODES
    batch_size: int = 8
    seed: int = 0
    max_tokens: int | None = None
    k: int | None = None
    cross_fit: bool = False
    run_code: bool = False

    def __post_init__(self) -> None:
        if not self.modes:
            raise ConfigError("there is no mode to evaluate", hint=f"known: {', '.join(MODES)}")
        for mode in self.modes:
            check_mode(mode)
        if len(set(self.modes)) < len(self.modes):
            raise ConfigError(f"a mode is named twice: {', '.join(self.modes)}")
        for name in ("batch_size", "max_tokens", "k"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}")

    @property
    def branches(self) -> tuple[str, ...]:
        """Which of the two answers are needed: a gate only ever chooses between them."""
        if "auto" in self.modes:
            return ("never", "always")
        return tuple(mode for mode in ("never", "always") if mode in self.modes)

    def params(self, pipeline: Pipeline) -> SamplingParams:
        """Returns how answers are generated.

        Args:
            pipeline: Says all but the length.
        """
        options: dict[str, Any] = {"max_tokens": self.max_tokens, "seed": self.seed}
        return replace(
            pipeline.params,
            **{name: value for name, value in options.items() if value is not None},
        )


def configuration(
    pipeline: Pipeline, dataset: EvalDataset, settings: QaSettings
) -> Mapping[str, Any]:
    """Returns all that the answers and figures of a run depend on, as plain data.

    Args:
        pipeline: Parts and settings.
        dataset: The questions, sampled already.
        settings: Of the run.
    """
    generator, retriever = pipeline.generator, pipeline.retriever
    return {
        "dataset": {
            "name": dataset.name,
            "format": dataset.format,
            "sha256": dataset.sha256,
            "task": dataset.task,
            "num_items": len(dataset.items),
        },
        "settings": {**asdict(settings), "modes": list(settings.modes)},
        "pipeline": pipeline.name,
        "target": generator.target.name,
        "target_fingerprint": generator.target.fingerprint,
        "dtype": str(generator.target.dtype).removeprefix("torch."),
        "quantization": generator.target.quantization,
        "drafter": generator.drafter.name,
        "speculation": asdict(generator.config),
        "sampling": asdict(settings.params(pipeline)),
        "k": settings.k or pipeline.k,
        "draft_tokens": pipeline.draft_tokens,
        "prompt_fingerprint": pipeline.prompts.fingerprint,
        "index": retriever.name if retriever else None,
        "index_fingerprint": retriever.fingerprint if retriever else None,
        "gate_fingerprint": pipeline.gate.fingerprint,
    }


def answers_key(
    pipeline: Pipeline, dataset: EvalDataset, settings: QaSettings
) -> Mapping[str, Any]:
    """Returns what the kept answers depend on: other judging or another gate may share them.

    Args:
        pipeline: Parts and settings.
        dataset: The questions, sampled already.
        settings: Of the run.
    """
    known = dict(configuration(pipeline, dataset, settings))
    for name in ("settings", "gate_fingerprint"):
        del known[name]
    questions = "\n".join(f"{item.id} {item.question}" for item in dataset.items)
    return {
        **known,
        "questions": hashlib.sha256(questions.encode()).hexdigest()[:16],
        "branches": list(settings.branches),
        "batch_size": settings.batch_size,
    }
