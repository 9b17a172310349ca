"""`specrag bench`: how much faster speculation is than plain decoding, on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specrag.cli.decoding_options import (
    Branching,
    Dtype,
    NumSpeculativeTokens,
    Policy,
    Quantization,
    Strict,
    chosen,
)
from specrag.cli.output import echo_json
from specrag.errors import ConfigError, InputError

if TYPE_CHECKING:
    from specrag.evaluation.reports.report import Report
    from specrag.evaluation.speed.benchmark import OpenPeer, SpeedSettings

_Datasets = Annotated[
    list[str],
    typer.Argument(metavar="DATASET...", help="Files of prompts: Spec-Bench's or other sets."),
]
_Format = Annotated[str, typer.Option(help="Format of the sets; auto tells it by the content.")]
_By = Annotated[str, typer.Option(metavar="group|category", help="What is reported apart.")]
_Categories = Annotated[
    str, typer.Option(help="Groups or categories to measure, with commas; all by default.")
]
_PerCategory = Annotated[int, typer.Option(min=1, help="Prompts of each category.")]
_Seed = Annotated[
    int | None, typer.Option(help="Draws the prompts; without it the first are taken.")
]
_Drafters = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help="Drafter, perhaps with settings 'NAME branching=1'; repeat it."
    ),
]
_Peers = Annotated[
    str, typer.Option(metavar="NAMES|all", help="Other engines to measure, with commas.")
]
_DraftModel = Annotated[str, typer.Option(help="Draft model, for peers that need one.")]
_Rounds = Annotated[int, typer.Option(min=1, help="Times that all is decoded; medians count.")]
_WarmUps = Annotated[int, typer.Option(min=0, help="Answers that each decodes first for nothing.")]
_Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads, pinned to processors; torch's by default.")
]
_Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder for the report; a run that was ended goes on there."),
]


def bench(
    ctx: typer.Context,
    datasets: _Datasets,
    format: _Format = "auto",
    by: _By = "group",
    categories: _Categories = "",
    per_category: _PerCategory = 10,
    seed: _Seed = None,
    drafters: _Drafters = None,
    peers: _Peers = "",
    draft_model: _DraftModel = "",
    model: Annotated[str, typer.Option(help="Target to decode with.")] = "smollm2-135m-instruct",
    num_speculative_tokens: NumSpeculativeTokens = 15,
    branching: Branching = 4,
    policy: Policy = "goodput",
    strict: Strict = False,
    dtype: Dtype = "auto",
    quantization: Quantization = "auto",
    max_tokens: Annotated[int, typer.Option(min=2, help="Most tokens of an answer.")] = 128,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="0 is greedy; else all draw with one seed.")
    ] = 0.0,
    rounds: _Rounds = 3,
    warm_ups: _WarmUps = 1,
    threads: _Threads = None,
    out: _Out = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Throw an earlier run of the folder away.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measures drafters and other engines against plain decoding, interleaved."""
    from tqdm import tqdm

    from specrag.decoding.budget import SpeculationConfig
    from specrag.evaluation.datasets.catalog import load_dataset
    from specrag.evaluation.speed.benchmark import SpeedSettings, benchmark

    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"{str(out)!r} is no folder", hint="give --out a folder, new or old")
    chosen_peers, open_peer = _peers(peers, model, draft_model)
    given = {
        **ctx.params,
        "speculation": chosen(SpeculationConfig, ctx.params),
        "drafters": tuple(drafters or ("suffix",)),
        "peers": chosen_peers,
        "categories": _words(categories),
    }
    settings: SpeedSettings = chosen(SpeedSettings, given)
    sets = [load_dataset(source, format) for source in datasets]
    with tqdm(desc="answers", disable=None) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        report = benchmark(
            settings, sets, open_peer=open_peer, folder=out, restart=restart, on_progress=show
        )
    _echo_report(report, out, as_json)


def _peers(typed: str, model: str, draft: str) -> tuple[tuple[str, ...], OpenPeer | None]:
    """Returns the names of the peers, and what starts them."""
    if not _words(typed):
        if draft:
            raise ConfigError(
                f"--draft-model {draft} is for peers, but none is asked for",
                hint=f"add --peers, or measure it as a drafter: --drafters draft:{draft}",
            )
        return (), None
    from specrag.evaluation.peers.catalog import expand, open_peer

    return tuple(expand(_words(typed), model)), lambda name, threads: open_peer(
        name, model, threads=threads, draft=draft or None
    )


def _words(typed: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in typed.split(",") if word.strip())


def _echo_report(report: Report, out: Path | None, as_json: bool) -> None:
    from specrag.evaluation.speed.table import speed_table

    figures = report.figures
    if out is not None:
        from specrag.evaluation.reports.written import write_report

        write_report(report, out)
        typer.echo(f"wrote {out}", err=True)
    if as_json:
        echo_json(report.to_dict())
    else:
        typer.echo(speed_table(figures, report.machine))
    reasons = {row["details"].get("decoded plainly") for row in figures["results"]} - {None}
    for reason in reasons:
        typer.echo(f"decoded plainly: {reason}", err=True)
    if figures["left_out"]:
        left_out = ", ".join(figures["left_out"])
        typer.echo(f"left out, too long for the context: {left_out}", err=True)
    for failure in figures["failed"]:
        where = f"{failure['arm']} failed at {failure['prompt_id']}"
        typer.echo(f"{where}: {failure['message']}", err=True)
    if figures["failed"]:
        raise typer.Exit(1)
