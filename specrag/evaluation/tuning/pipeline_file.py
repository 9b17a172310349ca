"""A tuned pipeline as a TOML file: complete, commented, with what was measured on top."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from specrag.errors import ConfigError
from specrag.evaluation.reports.report import Report
from specrag.rag.config import PipelineConfig

_WIDTH = 100
_NO_KEYS = ("name", "folder")  # of the file, not in it
COMMENTS: Mapping[str, str] = {
    "target.model": "an embedded name, a hub name, a folder or a .gguf path",
    "target.dtype": "auto, float32, bfloat16 or float16",
    "target.quantization": "auto, none, float16 or int8",
    "target.device": "auto, cpu, cuda ...",
    "target.prefix_cache_mb": "memory for the beginnings of prompts, in MiB; 0 keeps none",
    "drafter.name": "suffix, prompt_lookup, none, draft:MODEL, a+b, a>b ...",
    "drafter.num_speculative_tokens": "most drafted tokens a pass",
    "drafter.branching": "alternatives for the next token in the draft tree; 1 drafts chains",
    "drafter.policy": "goodput, recent_acceptance or fixed",
    "drafter.min_acceptance": "under this the policies goodput and recent_acceptance pause",
    "drafter.strict": "true: plain decoding's bits in any precision",
    "retrieval.index": "a recipe of indexes/, or the path of a recipe file; empty for none",
    "retrieval.k": "passages looked up",
    "retrieval.context_tokens": "most prompt tokens for passages",
    "gate.mode": "auto, always or never",
    "gate.draft_tokens": "tokens of the closed-book answer that the gate looks at",
    "gate.calibration": "fitted thresholds, made by `specrag gate calibrate`",
    "prompt.system": "empty: the model's own default",
    "answer.max_tokens": "most tokens of an answer",
    "answer.temperature": "0 is greedy",
    "answer.top_p": "nucleus of the distribution kept",
    "answer.top_k": "most probable tokens kept; 0 keeps all",
    "answer.repetition_penalty": "above 1.0 discourages repetition",
}


def check_target(path: Path, force: bool = False) -> None:
    """Refuses a place for the file before anything is measured.

    Args:
        path: Of the file to write.
        force: Whether a file that is there may be replaced.

    Raises:
        ConfigError: It is no ``.toml`` name, its folder is missing, or it exists already.
    """
    if path.suffix != ".toml":
        raise ConfigError(f"a pipeline file ends with .toml, got {str(path)!r}")
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder {str(path.parent)!r}", hint="make it first")
    if path.is_dir() or (path.exists() and not force):
        raise ConfigError(f"{str(path)!r} exists", hint="give another name, or --force")


def tuned(config: PipelineConfig, advice: Mapping[str, Any], path: Path) -> PipelineConfig:
    """Returns a pipeline with the advised drafter, as it will be loaded from a path.

    A calibration of its gate is left out: it holds for the drafter that it was fitted with.

    Args:
        config: The pipeline that was tuned; everything but its drafter is carried over.
        advice: Of the report.
        path: Of the file to write.
    """
    names = ("num_speculative_tokens", "branching", "policy")
    drafter = replace(
        config.drafter, name=advice["drafter"], **{name: advice[name] for name in names}
    )
    folder = path.parent
    return replace(
        config,
        name=path.stem,
        folder=folder,
        drafter=drafter,
        target=replace(config.target, model=_moved(config.target.model, config.folder, folder)),
        retrieval=replace(
            config.retrieval, index=_moved(config.retrieval.index, config.folder, folder)
        ),
        gate=replace(config.gate, calibration=""),
    )


def pipeline_text(config: PipelineConfig, report: Report, path: Path) -> str:
    """Returns the file of a tuned pipeline.

    Args:
        config: The pipeline that was tuned.
        report: Of kind ``tuning``.
        path: Where the file will lie.
    """
    made = tuned(config, report.figures["advice"], path)
    lines = list(_comments(_measured(report)))
    if config.gate.calibration:
        lines += _comments([f"Fit its gate with: specrag gate calibrate --pipeline {path}"])
    lines.append(f"description = {_text(made.description or 'Tuned on own prompts')}")
    for section in fields(made):
        table = getattr(made, section.name)
        if not is_dataclass(table):
            continue
        lines += ["", f"[{section.name}]"]
        for key in fields(table):
            comment = COMMENTS.get(f"{section.name}.{key.name}", "")
            line = f"{key.name} = {_value(getattr(table, key.name))}"
            lines.append(f"{line}  # {comment}" if comment and "\n" not in line else line)
    return "\n".join(lines) + "\n"


def write_pipeline(config: PipelineConfig, report: Report, path: Path) -> None:
    """Writes the file of a tuned pipeline; what was there is replaced whole or not at all.

    Args:
        config: The pipeline that was tuned.
        report: Of kind ``tuning``.
        path: See ``check_target``.
    """
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(pipeline_text(config, report, path), encoding="utf-8")
    partial.replace(path)


def _measured(report: Report) -> Iterator[str]:
    figures, machine = report.figures, report.machine
    yield f"Written by `{report.command}`, {report.created_at[:10]}."
    yield (
        f"Measured on {machine['processor']}, {machine['threads']} threads, torch "
        f"{machine['torch']}, {report.configuration['num_prompts']} prompts of "
        f"{report.configuration['prompts']}."
    )
    yield from figures["advice"]["reasons"]
    yield f"Plain decoding: {figures['plain']['tokens_per_second']:.1f} tokens/s."
    for row in figures["finals"]:
        yield (
            f"{row['drafter']}, {row['policy']}, {row['num_speculative_tokens']} tokens, branching "
            f"{row['branching']}: {row['tokens_per_second']:.1f} tokens/s, {row['speedup']:.2f}x, "
            f"mean acceptance length {row['mean_acceptance_length']:.2f}."
        )
    costs = figures["costs"]
    pairs = zip(costs["num_nodes"], costs["relative"], strict=True)
    yield (
        "Cost of a pass by its size, one token being 1: "
        f"{', '.join(f'{size}: {cost:.2f}' for size, cost in pairs)}."
    )


def _comments(sentences: Iterator[str] | Sequence[str]) -> Iterator[str]:
    for sentence in sentences:
        shown = "".join(sign if sign.isprintable() else " " for sign in sentence)
        yield from textwrap.wrap(
            shown, _WIDTH, initial_indent="# ", subsequent_indent="#   ",
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip


def _moved(name: str, old: Path, new: Path) -> str:
    """Returns a path that was relative to one folder as one that is relative to another."""
    if not (name.endswith(".toml") or name.startswith(("./", "../"))) or Path(name).is_absolute():
        return name
    moved = Path(os.path.relpath((old / name).absolute(), new.absolute())).as_posix()
    return moved if moved.startswith("../") else f"./{moved}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return _text(value) if isinstance(value, str) else repr(value)


def _text(text: str) -> str:
    """Writes a TOML string; JSON escapes what TOML does, but for the delete sign."""
    parts = [
        json.dumps(line, ensure_ascii=False)[1:-1].replace("\x7f", "\\u007f")
        for line in text.split("\n")
    ]
    # A line break right behind the opening marks is not part of the text.
    return f'"{parts[0]}"' if len(parts) == 1 else '"""\n' + "\n".join(parts) + '"""'
