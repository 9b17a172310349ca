"""A whole tuning run: loads the pipeline's target, measures, and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from specrag.decoding.budget import PassCosts
from specrag.decoding.costs import costs_of, known_costs, known_draft_level
from specrag.decoding.drafter import Drafter, named_drafter
from specrag.decoding.generator import SpeculativeGenerator
from specrag.drafters.catalog import parse
from specrag.errors import ConfigError
from specrag.evaluation.reports.report import Report
from specrag.evaluation.speed.engine_arm import PLAIN, EngineArm
from specrag.evaluation.speed.prompts import encode_questions
from specrag.evaluation.speed.threads import pinned_threads
from specrag.evaluation.tuning.candidate import Candidate
from specrag.evaluation.tuning.prompts import PromptSource
from specrag.evaluation.tuning.race import Progress, Race
from specrag.evaluation.tuning.search import Findings, search
from specrag.rag.build import SpecRAG, speculation_config
from specrag.rag.config import PipelineConfig

DRAFTERS = ("suffix", "prompt_lookup", "selector")
WITH_MODEL = ("draft:{}", "suffix+draft:{}", "suffix>draft:{}")


@dataclass(frozen=True, slots=True)
class TuneSettings:
    """What to tune, and how long that may take.

    Attributes:
        pipeline: Its target is tuned, with its prompts and the settings that are not tuned.
        drafters: Names to try.
        max_tokens: Most tokens of an answer.
        minutes: Time for measuring; loading comes on top.
        rounds: Times that the final decodes everything; medians count.
        seed: Of the intervals, and of the choice of prompts.
        threads: Pinned to processors; None takes as many as torch would.
    """

    pipeline: PipelineConfig = field(default_factory=PipelineConfig)
    drafters: tuple[str, ...] = DRAFTERS
    max_tokens: int = 128
    minutes: float = 10.0
    rounds: int = 3
    seed: int | None = None
    threads: int | None = None


def drafters_to_try(named: tuple[str, ...], draft_model: str = "") -> tuple[str, ...]:
    """Returns the drafters of a run, checked; plain decoding, which is always measured, left out.

    Args:
        named: What the user asked for; nothing stands for the usual ones.
        draft_model: Adds the ways to draft with this model.

    Raises:
        ConfigError: A name cannot be understood, or none is left.
    """
    added = [pattern.format(draft_model) for pattern in WITH_MODEL] if draft_model else []
    names = [name for name in dict.fromkeys([*(named or DRAFTERS), *added]) if name != PLAIN]
    for name in names:
        parse(name)
    if not names:
        raise ConfigError("there is no drafter to tune", hint="name one, such as suffix")
    return tuple(names)


def tune(
    settings: TuneSettings,
    source: PromptSource,
    *,
    on_progress: Progress = lambda stage, done, total: None,
) -> Report:
    """Measures drafters and settings on prompts and says what to use.

    Args:
        settings: What to tune.
        source: The prompts.
        on_progress: Told after each answer.

    Raises:
        ConfigError: A drafter cannot draft for the target, or the target takes no drafts at all.
        InputError: All prompts are too long.
        SpecragError: A model cannot be loaded.
    """
    with pinned_threads(settings.threads) as threads:
        rag = _loaded(settings.pipeline)
        generator, target = rag.generator, rag.generator.target
        prompts, left_out = encode_questions(
            source.questions,
            lambda messages: _prompt_ids(rag, messages[-1]["content"]),
            target.max_context - settings.max_tokens,
        )
        engine = _Engine(generator, settings.pipeline)
        race = Race(
            engine.plain,
            engine.open,
            prompts,
            max_tokens=settings.max_tokens,
            seconds=60 * settings.minutes,
            end_token_ids=target.eos_token_ids,
            seed=settings.seed or 0,
            on_progress=on_progress,
        )
        found = search(
            race,
            settings.drafters,
            engine.costs,
            engine.level,
            base=speculation_config(settings.pipeline),
            rounds=settings.rounds,
        )
        configuration = {
            **asdict(replace(settings, threads=threads)),
            **_configuration(rag, source, engine.plain.details),
            "num_prompts": len(prompts),
            "left_out": left_out,
            "notes": [*_notes(source, rag), *found.notes],
        }
        return Report(
            kind="tuning",
            title=f"Speculation for {target.name}: {_verdict(found)}",
            configuration=configuration,
            figures=tuning_figures(found, engine.costs),
            seed=settings.seed or 0,
        )


def tuning_figures(found: Findings, costs: PassCosts) -> dict[str, Any]:
    """Returns all figures of a search as plain data.

    Args:
        found: By the search.
        costs: What a pass costs.
    """
    plain_ms = found.plain["ms_per_token"]["p50"] or found.plain["ms_per_token"]["mean"]
    return {
        "costs": {
            "num_nodes": list(costs.num_nodes),
            "relative": list(costs.relative),
            "ms": [round(cost * plain_ms, 4) for cost in costs.relative] if plain_ms else None,
        },
        "plain": {
            name: found.plain[name]
            for name in ("tokens_per_second", "ms_per_token", "num_prompts", "num_tokens")
        },
        "drafters": [drafter.figures for drafter in found.drafters],
        "sweep": [result.figures for result in found.sweep],
        "finals": [result.figures for result in found.finals],
        "advice": found.advice.to_dict(),
    }


class _Engine:
    """Makes the arms of one loaded target, as a pipeline with these settings would decode."""

    def __init__(self, generator: SpeculativeGenerator, pipeline: PipelineConfig) -> None:
        self._generator = generator
        self._base = speculation_config(pipeline)
        self._drafters: dict[tuple[str, bool], Drafter] = {}
        self._levels: dict[str, float] = {}
        self.plain = EngineArm(generator, PLAIN)
        self.costs = known_costs(generator.target)

    def level(self, name: str) -> float:
        drafter = self._drafter(name, True)
        drafter.bind(self._generator.target, self._generator.tokenizer, self.costs)
        target = self._generator.target
        return sum(known_draft_level(target, level) for level in drafter.levels)

    def open(self, candidate: Candidate) -> EngineArm:
        target, tokenizer = self._generator.target, self._generator.tokenizer
        config = candidate.config(self._base)
        drafter = self._drafter(candidate.drafter, config.policy == "goodput")
        costs = costs_of(target, tokenizer, drafter, config)
        made = SpeculativeGenerator(target, tokenizer, drafter, config, costs)
        return EngineArm(made, candidate.name)

    def _drafter(self, name: str, with_costs: bool) -> Drafter:
        """Returns a drafter; one with models is made once, being large."""
        known: Mapping[tuple[str, bool], Drafter] = self._drafters
        other = known.get((name, not with_costs))
        if (name, with_costs) not in known:
            shared = other if other is not None and other.levels else named_drafter(name)
            self._drafters[name, with_costs] = shared
        return self._drafters[name, with_costs]


def _loaded(pipeline: PipelineConfig) -> SpecRAG:
    plain = replace(pipeline, drafter=replace(pipeline.drafter, name=PLAIN, strict=False))
    rag = SpecRAG.from_config(plain)
    if rag.generator.target.no_speculation:
        raise ConfigError(
            f"{rag.generator.target.name} decodes plainly, so there is nothing to tune: "
            f"{rag.generator.target.no_speculation}"
        )
    return rag


def _configuration(
    rag: SpecRAG, source: PromptSource, details: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "pipeline": rag.name,
        "model": rag.generator.target.name,
        "dtype": details["dtype"],
        "device": details["device"],
        "prompts": source.name,
        "prompts_sha256": source.sha256,
        "with_passages": _with_passages(rag),
    }


def _with_passages(rag: SpecRAG) -> bool:
    return rag.retriever is not None and rag.mode != "never"


def _prompt_ids(rag: SpecRAG, question: str) -> list[int]:
    """Returns the prompt that the pipeline would decode, with passages where it looks some up."""
    if _with_passages(rag):
        assert rag.retriever is not None, "a pipeline with passages has an index"
        prompt = rag.prompts.with_passages(question, rag.retriever.retrieve(question, rag.k))
    else:
        prompt = rag.prompts.closed_book(question)
    return rag.generator.prompt_ids(prompt.messages)


def _notes(source: PromptSource, rag: SpecRAG) -> list[str]:
    said = []
    if source.built_in:
        said.append(
            "These are our own prompts; acceptance depends on the text, so tune on yours before "
            "you rely on it."
        )
    if _with_passages(rag):
        said.append("Each prompt has the passages that the pipeline looks up for it.")
    return said


def _verdict(found: Findings) -> str:
    advice = found.advice
    return f"use {advice.drafter}" if advice.speculate else "it does not pay here"
