"""`specrag tune`: finds the drafter and settings that fit a machine and a user's own prompts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specrag.cli.output import echo_json
from specrag.errors import InputError

if TYPE_CHECKING:
    from specrag.evaluation.reports.report import Report
    from specrag.evaluation.tuning.prompts import PromptSource
    from specrag.evaluation.tuning.run import TuneSettings
    from specrag.rag.config import PipelineConfig

_Prompts = Annotated[
    str | None,
    typer.Argument(
        metavar="PROMPTS", help="Your prompts: a text file, or a set of them; a few of ours."
    ),
]
_Format = Annotated[str, typer.Option(help="Format of the set; auto tells it by the content.")]
_Pipeline = Annotated[
    str | None, typer.Option(help="Pipeline to tune; all but its drafter is kept.")
]
_Model = Annotated[str | None, typer.Option(help="Target, in place of the pipeline's.")]
_Dtype = Annotated[
    str | None, typer.Option(metavar="auto|float32|bfloat16|float16", help="Precision.")
]
_Drafters = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Drafter; repeat it for several.")
]
_DraftModel = Annotated[str, typer.Option(help="Draft model of the same family, to try as well.")]
_Minutes = Annotated[float, typer.Option(min=0.01, help="Minutes to measure for.")]
_Count = Annotated[int, typer.Option(min=2, help="Most prompts.")]
_MaxTokens = Annotated[
    int | None, typer.Option(min=2, help="Most tokens of an answer; the pipeline's, up to 128.")
]
_Rounds = Annotated[int, typer.Option(min=1, help="Times that the final decodes all prompts.")]
_Seed = Annotated[int | None, typer.Option(help="Draws the prompts; else the first are taken.")]
_Threads = Annotated[int | None, typer.Option(min=1, help="Threads, pinned to processors.")]
_Write = Annotated[
    Path | None, typer.Option(metavar="PIPELINE.toml", help="Pipeline file to write.")
]
_Force = Annotated[bool, typer.Option("--force", help="Replace a pipeline file that is there.")]
_Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder to write the report into.")]


def tune(
    prompts: _Prompts = None,
    format: _Format = "auto",
    pipeline: _Pipeline = None,
    model: _Model = None,
    dtype: _Dtype = None,
    drafters: _Drafters = None,
    draft_model: _DraftModel = "",
    budget_minutes: _Minutes = 10.0,
    num_prompts: _Count = 12,
    max_tokens: _MaxTokens = None,
    rounds: _Rounds = 3,
    seed: _Seed = None,
    threads: _Threads = None,
    write: _Write = None,
    force: _Force = False,
    out: _Out = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Finds the drafter and settings that are fastest on your prompts, and writes a pipeline."""
    from specrag.evaluation.tuning.pipeline_file import check_target, write_pipeline
    from specrag.evaluation.tuning.prompts import read_prompts
    from specrag.evaluation.tuning.run import TuneSettings, drafters_to_try

    # What can be wrong is checked before the minutes that measuring takes.
    if write is not None:
        check_target(write, force)
    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"{str(out)!r} is no folder", hint="give --out a folder, new or old")
    config = _config(pipeline, model, dtype)
    settings = TuneSettings(
        config,
        drafters_to_try(tuple(drafters or ()), draft_model),
        max_tokens or min(128, config.answer.max_tokens),
        budget_minutes,
        rounds,
        seed,
        threads,
    )
    source = read_prompts(prompts, format=format, count=num_prompts, seed=seed)
    report = _measured(settings, source)
    if write is not None:
        write_pipeline(config, report, write)
        typer.echo(f"wrote {write}", err=True)
    _echo_report(report, out, as_json)


def _config(pipeline: str | None, model: str | None, dtype: str | None) -> PipelineConfig:
    """Returns the pipeline to tune; without one, a plain one that asks no documents."""
    from specrag.rag.config import GateConfig, PipelineConfig, RetrievalConfig, load_pipeline

    if pipeline is None:
        config = PipelineConfig(
            "tuned", retrieval=RetrievalConfig(index=""), gate=GateConfig(mode="never")
        )
    else:
        config = load_pipeline(pipeline)
    target = config.target
    if model is not None:
        # Typed here, so relative to here and not to the pipeline's file.
        place = Path(model).absolute() if model.startswith(("./", "../")) else model
        target = replace(target, model=str(place))
    return replace(config, target=replace(target, dtype=dtype or target.dtype))


def _measured(settings: TuneSettings, source: PromptSource) -> Report:
    from tqdm import tqdm

    from specrag.evaluation.tuning.run import tune as run_tuning

    with tqdm(disable=None) as bar:

        def show(stage: str, done: int, total: int) -> None:
            if done == 1:
                bar.reset(total)
                bar.set_description(stage)
            bar.update()

        return run_tuning(settings, source, on_progress=show)


def _echo_report(report: Report, out: Path | None, as_json: bool) -> None:
    from specrag.evaluation.tuning.table import tuning_table

    if out is not None:
        from specrag.evaluation.reports.written import write_report

        write_report(report, out)
        typer.echo(f"wrote {out}", err=True)
    if as_json:
        echo_json(report.to_dict())
    else:
        typer.echo(tuning_table(report))
