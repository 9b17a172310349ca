"""A whole benchmark: loads the target, opens all arms, measures them, and reports."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from specrag.decoding.budget import SpeculationConfig
from specrag.decoding.drafter import Drafter, named_drafter
from specrag.decoding.generator import SpeculativeGenerator
from specrag.decoding.sampling import SamplingParams
from specrag.errors import ConfigError
from specrag.evaluation.datasets.item import EvalDataset
from specrag.evaluation.machine import commit, machine, versions
from specrag.evaluation.reports.report import Report
from specrag.evaluation.speed.arm import Arm
from specrag.evaluation.speed.arm_spec import read_arm
from specrag.evaluation.speed.engine_arm import PLAIN, engine_arms
from specrag.evaluation.speed.figures import speed_figures
from specrag.evaluation.speed.kept import kept_prompts
from specrag.evaluation.speed.measure import Progress, SpeedRun, measure_speed
from specrag.evaluation.speed.prompts import SpeedQuestion, choose_questions, encode_questions
from specrag.evaluation.speed.threads import pinned_threads
from specrag.models.embedded import DEFAULT_TARGET

OpenPeer = Callable[[str, int], Arm]
"""Starts another engine, given its name and the number of threads."""


@dataclass(frozen=True, slots=True)
class SpeedSettings:
    """All that the figures depend on but the prompts.

    Attributes:
        model: The target.
        dtype: Its precision.
        quantization: How its weights are packed.
        drafters: Registered names, each perhaps with settings of its own, see ``read_arm``; plain
            decoding is always measured.
        peers: Names of other engines.
        draft_model: Draft model of peers that need one.
        speculation: How much is drafted.
        by: ``group`` or ``category``, what is reported apart.
        categories: Groups or categories to measure; all of them if none is named.
        per_category: Most prompts of each.
        seed: Draws the prompts; None takes the first ones.
        max_tokens: Most tokens of an answer.
        rounds: Times that everything is decoded.
        warm_ups: Answers that each arm first decodes for nothing.
        threads: Pinned to processors; None takes as many as torch would.
        temperature: Of the sampling; 0 is greedy. All arms draw with the same seed.
    """

    model: str = DEFAULT_TARGET
    dtype: str = "auto"
    quantization: str = "auto"
    drafters: tuple[str, ...] = ("suffix",)
    peers: tuple[str, ...] = ()
    draft_model: str = ""
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)
    by: str = "group"
    categories: tuple[str, ...] = ()
    per_category: int | None = 10
    seed: int | None = None
    max_tokens: int = 128
    rounds: int = 3
    warm_ups: int = 1
    threads: int | None = None
    temperature: float = 0.0


def benchmark(
    settings: SpeedSettings,
    datasets: Sequence[EvalDataset],
    *,
    open_peer: OpenPeer | None = None,
    folder: Path | None = None,
    restart: bool = False,
    on_progress: Progress = lambda done, total: None,
) -> Report:
    """Measures drafters and other engines against plain decoding of this one.

    Args:
        settings: What to measure and how.
        datasets: Where the prompts come from.
        open_peer: Starts the engines that ``settings.peers`` names.
        folder: Keeps each prompt that is done; a run of the same settings goes on there.
        restart: Whether to throw away what an earlier run has left in it.
        on_progress: Told after each answer.

    Raises:
        ConfigError: A name is unknown, or given twice, or the folder holds another run.
        InputError: There is no prompt to measure, or the folder cannot be written to.
        SpecragError: The target or a peer cannot be loaded.
    """
    _check_names(settings)
    # Names are checked before the time that loading takes.
    specs = {
        line: read_arm(line, settings.speculation) for line in settings.drafters if line != PLAIN
    }
    drafters = {line: spec.drafter for line, spec in specs.items()}
    sampling = SamplingParams(temperature=settings.temperature, seed=settings.seed or 0)
    questions = _questions(settings, datasets)
    with contextlib.ExitStack() as stack:
        threads = stack.enter_context(pinned_threads(settings.threads))
        # Plain decoding asks for no costs, and the other drafters need them.
        generator = _loaded(settings, next(iter(drafters.values()), named_drafter(PLAIN)))
        room = generator.target.max_context - settings.max_tokens
        prompts, left_out = encode_questions(questions, generator.prompt_ids, room)
        configs = {line: spec.config for line, spec in specs.items()}
        plain, others = engine_arms(generator, drafters, configs, sampling)
        peers: list[Arm] = []
        for name in settings.peers:
            assert open_peer is not None, "peers are named, but nothing opens them"
            peers.append(stack.enter_context(contextlib.closing(open_peer(name, threads))))
        told = _configuration(settings, datasets, threads, plain.details)
        # Figures of two machines or states of the source are not of one run.
        key = {**told, "machine": machine(), "commit": commit(), "versions": versions()}
        done = stack.enter_context(kept_prompts(folder, prompts, key, restart=restart))
        run = measure_speed(
            plain,
            [*others, *peers],
            prompts,
            max_tokens=settings.max_tokens,
            rounds=settings.rounds,
            warm_ups=settings.warm_ups,
            done=done,
            on_progress=on_progress,
        )
        return _report(run, generator, told, left_out)


def _questions(settings: SpeedSettings, datasets: Sequence[EvalDataset]) -> list[SpeedQuestion]:
    return choose_questions(
        datasets,
        by=settings.by,
        categories=settings.categories,
        per_category=settings.per_category,
        seed=settings.seed,
    )


def _loaded(settings: SpeedSettings, drafter: Drafter) -> SpeculativeGenerator:
    return SpeculativeGenerator.from_pretrained(
        settings.model,
        drafter,
        dtype=settings.dtype,
        quantization=settings.quantization,
        config=settings.speculation,
    )


def _report(
    run: SpeedRun,
    generator: SpeculativeGenerator,
    configuration: dict[str, Any],
    left_out: Sequence[str],
) -> Report:
    seed = configuration["seed"] or 0
    ends = generator.target.eos_token_ids
    return Report(
        kind="speed",
        title=f"Speed of {generator.target.name}: {', '.join(run.arms)}",
        configuration=configuration,
        figures=speed_figures(
            run, end_token_ids=ends, costs=generator.costs, left_out=left_out, seed=seed
        ),
        seed=seed,
    )


def _check_names(settings: SpeedSettings) -> None:
    names = [*settings.drafters, *settings.peers]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"{', '.join(map(repr, twice))} is named twice", hint="name it once")
    if settings.peers and settings.temperature:
        raise ConfigError(
            f"peers decode greedily, and the temperature is {settings.temperature:g}",
            hint="leave --peers or --temperature out",
        )


def _configuration(
    settings: SpeedSettings,
    datasets: Sequence[EvalDataset],
    threads: int,
    details: dict[str, str],
) -> dict[str, Any]:
    return {
        **asdict(settings),
        "dtype": details["dtype"],
        "quantization": details["quantization"],
        "device": details["device"],
        "threads": threads,
        "datasets": [
            {
                "name": dataset.name,
                "format": dataset.format,
                "source": dataset.source,
                "sha256": dataset.sha256,
                "num_questions": len(dataset.items),
            }
            for dataset in datasets
        ],
    }
