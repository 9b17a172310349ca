"""The composition root: names and definitions become a running pipeline, here and only here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specrag.decoding.budget import SpeculationConfig
from specrag.decoding.drafter import Drafter, named_drafter
from specrag.decoding.generator import SpeculativeGenerator
from specrag.decoding.sampling import SamplingParams
from specrag.errors import ConfigError
from specrag.gate.calibration import Calibration
from specrag.gate.policy import CalibratedGate, FixedGate, RetrievalGate
from specrag.models.embedded import DEFAULT_TARGET
from specrag.models.target import TargetModel
from specrag.models.tokenizer import Tokenizer
from specrag.rag.config import PipelineConfig, TargetConfig, load_pipeline
from specrag.rag.named_indexes import open_named
from specrag.rag.pipeline import Pipeline
from specrag.rag.prompt import PromptBuilder
from specrag.retrieval.langchain_retriever import LangChainRetriever, is_langchain
from specrag.retrieval.retriever import Retriever


class SpecRAG(Pipeline):
    """A pipeline made from names, paths or ready parts.

    ``SpecRAG.load("qa")`` reads a definition; the constructor takes the parts themselves.

    Args:
        target: A model's name or path, or a loaded target (then ``tokenizer`` is needed).
        drafter: A registered name, or a drafter.
        index: Name of an index recipe, path of a recipe file or of a folder of documents, a
            retriever, a LangChain vector store or retriever, or None for no documents.
        gate: Decides in mode ``auto``; by default every question is looked up.
        tokenizer: Of a loaded target.
        config: Everything else; the defaults of a pipeline definition.
        progress: Whether to show progress bars on standard error while an index is built.

    Raises:
        ModelError: A model cannot be fetched or loaded.
        ConfigError: A name is unknown.
        IndexFormatError: The index is damaged or foreign.
    """

    def __init__(
        self,
        *,
        target: str | TargetModel = DEFAULT_TARGET,
        drafter: str | Drafter = "suffix",
        index: str | Path | Retriever | Any | None = None,
        gate: RetrievalGate | None = None,
        tokenizer: Tokenizer | None = None,
        config: PipelineConfig | None = None,
        progress: bool = False,
    ) -> None:
        settings = config or PipelineConfig()
        # What costs nothing to check comes before what costs seconds to load.
        params = sampling_params(settings)
        speculation = speculation_config(settings)
        guesser = named_drafter(drafter) if isinstance(drafter, str) else drafter
        retriever = _retriever(index, progress)
        generator = _generator(target, guesser, tokenizer, settings.target, speculation)
        super().__init__(
            generator,
            PromptBuilder(settings.prompt, generator.tokenizer, settings.retrieval.context_tokens),
            retriever,
            gate,
            params=params,
            mode=settings.gate.mode,
            k=settings.retrieval.k,
            draft_tokens=settings.gate.draft_tokens,
            name=settings.name,
        )

    @classmethod
    def load(
        cls,
        pipeline: str | PipelineConfig = "qa",
        *,
        docs: str | Path | None = None,
        index: str | Retriever | None = None,
        progress: bool = False,
    ) -> SpecRAG:
        """Loads a pipeline definition, building its index when needed.

        Args:
            pipeline: A pipeline's name, the path of a TOML file, or a definition.
            docs: A folder of documents (or one file) to ask instead of the pipeline's index.
            index: Name of an index recipe, or a retriever, to ask instead of the pipeline's.
            progress: Whether to show progress bars on standard error.

        Raises:
            ConfigError: The definition is unknown or not valid.
            ModelError: A model cannot be fetched or loaded.
            IndexFormatError: The index is damaged or foreign.
        """
        config = load_pipeline(pipeline) if isinstance(pipeline, str) else pipeline
        rag = cls.from_config(config, docs=docs, index=index, progress=progress)
        rag.gate = _gate(config, rag.fingerprints())
        return rag

    @classmethod
    def from_config(
        cls,
        config: PipelineConfig,
        *,
        docs: str | Path | None = None,
        index: str | Retriever | None = None,
        progress: bool = False,
    ) -> SpecRAG:
        """Makes the pipeline of a definition without its calibration, which may not exist yet.

        Args:
            config: The definition.
            docs: As for ``load``.
            index: As for ``load``.
            progress: Whether to show progress bars on standard error.
        """
        return cls(
            target=str(_beside(config, config.target.model)),
            drafter=config.drafter.name,
            index=Path(docs) if docs is not None else index or _own_index(config),
            config=config,
            progress=progress,
        )

    def fingerprints(self) -> dict[str, str]:
        """Returns what a calibration of this pipeline's gate holds for, part by part."""
        return {
            "target": self.generator.target.fingerprint,
            "drafter": self.generator.drafter.name,
            "speculation": repr(self.generator.config),
            "prompt": self.prompts.fingerprint,
            "draft_tokens": str(self.draft_tokens),
            "index": self.retriever.fingerprint if self.retriever else "",
        }


def speculation_config(config: PipelineConfig) -> SpeculationConfig:
    """Returns how a pipeline speculates.

    Args:
        config: The pipeline's definition.

    Raises:
        ConfigError: A value is not allowed.
    """
    drafter = config.drafter
    return SpeculationConfig(
        drafter.num_speculative_tokens,
        branching=drafter.branching,
        policy=drafter.policy,
        min_acceptance=drafter.min_acceptance,
        strict=drafter.strict,
    )


def sampling_params(config: PipelineConfig) -> SamplingParams:
    """Returns the sampling parameters of a pipeline.

    Args:
        config: Its definition.
    """
    answer = config.answer
    return SamplingParams(
        temperature=answer.temperature,
        top_p=answer.top_p,
        top_k=answer.top_k,
        repetition_penalty=answer.repetition_penalty,
        max_tokens=answer.max_tokens,
    )


def calibration_path(config: PipelineConfig) -> Path | None:
    """Returns the file of a pipeline's calibration, None when it names none.

    Args:
        config: Its definition.
    """
    return config.folder / config.gate.calibration if config.gate.calibration else None


def _retriever(index: str | Path | Retriever | Any | None, progress: bool) -> Retriever | None:
    if index is None or isinstance(index, Retriever):
        return index
    if not isinstance(index, str | Path) and is_langchain(index):
        return LangChainRetriever(index)
    return open_named(index, progress)


def _own_index(config: PipelineConfig) -> str | Path | None:
    return _beside(config, config.retrieval.index) if config.retrieval.index else None


def _beside(config: PipelineConfig, name: str) -> str | Path:
    """Returns a path relative to the pipeline's file for what is plainly one, else the name."""
    is_path = name.endswith(".toml") or name.startswith(("./", "../"))
    return (config.folder / name).absolute() if is_path else name


def _generator(
    target: str | TargetModel,
    drafter: Drafter,
    tokenizer: Tokenizer | None,
    config: TargetConfig,
    speculation: SpeculationConfig,
) -> SpeculativeGenerator:
    if isinstance(target, str):
        return SpeculativeGenerator.from_pretrained(
            target,
            drafter,
            dtype=config.dtype,
            device=config.device,
            quantization=config.quantization,
            config=speculation,
            prefix_cache_mb=config.prefix_cache_mb,
        )
    if tokenizer is None:
        raise ConfigError("a loaded target needs its tokenizer", hint="pass tokenizer=...")
    return SpeculativeGenerator(target, tokenizer, drafter, speculation)


def _gate(config: PipelineConfig, parts: Mapping[str, str]) -> RetrievalGate:
    """Returns the calibrated gate, or the safe default where no calibration fits."""
    path = calibration_path(config)
    if path is None:
        return FixedGate(True, "No calibration is configured, so the documents were asked.")
    calibration = Calibration.load(path)
    other = [name for name, value in parts.items() if calibration.fitted_on.get(name) != value]
    if other:
        return FixedGate(
            True,
            f"The gate was calibrated for another {' and '.join(other)}, so the documents were "
            "asked to be safe; `specrag gate calibrate` fits it to this combination.",
        )
    if not calibration.beats_chance:
        return FixedGate(
            True, "The gate was found to decide no better than chance, so the documents were asked."
        )
    return CalibratedGate(calibration)
