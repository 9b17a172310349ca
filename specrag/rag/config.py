"""Pipeline definitions: strict TOML in, frozen dataclasses out. Data only, nothing executes."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from specrag.errors import ConfigError, suggest
from specrag.home import find_definition

MODES = ("auto", "always", "never")


@dataclass(frozen=True, slots=True)
class TargetConfig:
    """The model that decides every token.

    Attributes:
        model: An embedded name, a hub name, a local folder or a ``.gguf`` path.
        dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``.
        device: ``auto`` or a torch device.
        quantization: ``auto``, ``none``, ``float16`` or ``int8``: how weights are packed for a CPU.
        prefix_cache_mb: Most memory, in MiB, for prompts that begin as earlier ones did. With 0
            an answer does not depend on earlier questions, not even in rounding.
    """

    model: str = "smollm2-135m-instruct"
    dtype: str = "auto"
    device: str = "auto"
    quantization: str = "auto"
    prefix_cache_mb: int = 0


@dataclass(frozen=True, slots=True)
class DrafterConfig:
    """The drafter and how much it may propose.

    Attributes:
        name: A drafter's name or a combination; ``none`` decodes plainly.
        num_speculative_tokens: Most drafted tokens a pass.
        branching: Most children of a node of the draft tree.
        policy: ``goodput``, ``recent_acceptance`` or ``fixed``: how much is drafted.
        min_acceptance: Acceptance below which speculation pauses; 0 never pauses it.
        strict: Whether the output is plain decoding's bit for bit in any precision.
    """

    name: str = "suffix"
    num_speculative_tokens: int = 15
    branching: int = 4
    policy: str = "goodput"
    min_acceptance: float = 0.4
    strict: bool = False


@dataclass(frozen=True, slots=True)
class RetrievalConfig:
    """The index that is asked, and how much of it reaches the prompt.

    Attributes:
        index: Name of an index recipe, or path of its TOML file; empty for no documents at all.
        k: Passages to look up.
        context_tokens: Most prompt tokens for passages; those that do not fit are left out whole.
    """

    index: str = "handbook"
    k: int = 2
    context_tokens: int = 900


@dataclass(frozen=True, slots=True)
class GateConfig:
    """When to retrieve.

    Attributes:
        mode: ``auto`` lets the gate decide; ``always`` and ``never`` do what they say.
        draft_tokens: Tokens of the closed-book answer that the gate looks at.
        calibration: Fitted thresholds, a JSON file beside the pipeline file; empty for none.
    """

    mode: str = "auto"
    draft_tokens: int = 16
    calibration: str = ""


@dataclass(frozen=True, slots=True)
class PromptConfig:
    """What the target is told.

    Attributes:
        system: System message of both branches; empty for the chat template's own.
        with_passages: User message with passages; ``{passages}`` and ``{question}`` are filled in.
        without_passages: User message of the closed-book branch; ``{question}`` is filled in.
    """

    system: str = ""
    with_passages: str = (
        "Context:\n{passages}\n\nAnswer the question based on the context above.\n"
        "Question: {question}"
    )
    without_passages: str = "{question}"


@dataclass(frozen=True, slots=True)
class AnswerConfig:
    """How answers are generated.

    Attributes:
        max_tokens: Most tokens of an answer.
        temperature: 0 is greedy.
        top_p: Nucleus of the distribution kept.
        top_k: Most probable tokens kept; 0 keeps all.
        repetition_penalty: Above 1.0 discourages repetition.
    """

    max_tokens: int = 128
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    repetition_penalty: float = 1.0


@dataclass(frozen=True, slots=True)
class PipelineConfig:
    """One pipeline: everything that ``SpecRAG.load`` needs.

    Attributes:
        name: The file's name without its ending.
        description: One line.
        folder: Folder of the file; paths in it are relative to this.
    """

    name: str = "default"
    description: str = ""
    target: TargetConfig = field(default_factory=TargetConfig)
    drafter: DrafterConfig = field(default_factory=DrafterConfig)
    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)
    gate: GateConfig = field(default_factory=GateConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    answer: AnswerConfig = field(default_factory=AnswerConfig)
    folder: Path = field(default_factory=Path)

    def __post_init__(self) -> None:
        check_mode(self.gate.mode)
        _at_least("retrieval.k", self.retrieval.k, 1)
        _at_least("retrieval.context_tokens", self.retrieval.context_tokens, 1)
        _at_least("gate.draft_tokens", self.gate.draft_tokens, 1)
        for slot in ("{passages}", "{question}"):
            if slot not in self.prompt.with_passages:
                raise ConfigError(f"prompt.with_passages must contain {slot}")
        if "{question}" not in self.prompt.without_passages:
            raise ConfigError("prompt.without_passages must contain {question}")


def check_mode(mode: str) -> None:
    """Refuses an unknown mode.

    Args:
        mode: What the user asked for.

    Raises:
        ConfigError: It is none of ``MODES``.
    """
    if mode not in MODES:
        raise ConfigError(f"unknown mode {mode!r}; {suggest(mode, MODES)}")


def load_pipeline(name: str) -> PipelineConfig:
    """Reads a pipeline definition.

    Args:
        name: A pipeline's name, searched in ``./pipelines`` and the package, or a ``.toml`` path.

    Raises:
        ConfigError: There is none, it is not TOML, or a key or value is not allowed.
    """
    path = (
        Path(name) if name.endswith(".toml") else find_definition("pipelines", name, f"{name}.toml")
    )
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"there is no pipeline file {name!r}") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read the pipeline {str(path)!r}: {error}") from error
    config: PipelineConfig = _build(
        PipelineConfig, content, path.stem, "", name=path.stem, folder=path.parent
    )
    return config


def _build(kind: type[Any], content: Mapping[str, Any], source: str, at: str, **given: Any) -> Any:
    """Makes a dataclass of a TOML table; every key must be a field of the right type."""
    hints = get_type_hints(kind)
    allowed = [item.name for item in fields(kind) if item.name not in given]
    values = dict(given)
    for key, value in content.items():
        where = f"{at}{key}"
        if key not in allowed:
            raise ConfigError(
                f"pipeline {source!r}: unknown key {where!r}; {suggest(key, allowed)}"
            )
        values[key] = _value(hints[key], value, source, where)
    return kind(**values)


def _value(kind: Any, value: Any, source: str, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise ConfigError(f"pipeline {source!r}: {where} must be a table, got {value!r}")
        return _build(kind, value, source, f"{where}.")  # type: ignore[arg-type]
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ConfigError(
            f"pipeline {source!r}: {where} must be of type {kind.__name__}, got {value!r}"
        )
    return value


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError(f"{name} must be at least {least}, got {value}")
