"""`specrag train`: makes text to train drafters on; `train_heads.py` adds the training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specrag.cli.arguments import show_progress
from specrag.cli.output import echo_field, echo_json
from specrag.errors import ConfigError

if TYPE_CHECKING:
    from specrag.training.corpus_report import CorpusReport

app = typer.Typer(no_args_is_help=True)

_DEFAULT_MODEL = "smollm2-135m-instruct"
_Files = list[Path] | None


@app.command("corpus")
def corpus(
    out: Annotated[
        Path, typer.Option(metavar="FILE.jsonl", help="File to write; an earlier run goes on.")
    ],
    prompts: Annotated[
        _Files, typer.Option(metavar="FILE", help="JSON lines, or a prompt a line; repeat it.")
    ] = None,
    own: Annotated[int, typer.Option(min=0, help="Instructions that the target makes up.")] = 0,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Answers to have; one a prompt by default.")
    ] = None,
    temperatures: Annotated[
        str, typer.Option(metavar="T,...", help="Of the answers, dealt in turn; 0 is greedy.")
    ] = "0,0.7,1",
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of an answer.")] = 192,
    max_prompt_tokens: Annotated[
        int, typer.Option(min=1, help="Longer prompts are left out.")
    ] = 1024,
    batch: Annotated[int, typer.Option(min=1, help="Answers that are decoded together.")] = 16,
    target: Annotated[str, typer.Option(help="Model that answers.")] = _DEFAULT_MODEL,
    drafter: Annotated[str, typer.Option(help="Drafter that makes it faster.")] = "none",
    seed: Annotated[int, typer.Option(help="Of all draws and of the prompts' order.")] = 0,
    exclude: Annotated[
        _Files, typer.Option(metavar="FILE", help="Prompts that must not be used; repeat it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Lets the target write the text that heads for it are trained on."""
    if not prompts and not own:
        raise ConfigError(
            "there is nothing to answer: neither --prompts nor --own is given",
            hint="give --prompts FILE, or --own 1000 for instructions of the target's own",
        )
    from specrag.training.corpus_settings import CorpusSettings
    from specrag.training.prompts import read_excluded, read_prompts

    settings = CorpusSettings(
        own,
        rows,
        _numbers(temperatures),
        max_tokens,
        max_prompt_tokens,
        batch_size=batch,
        seed=seed,
    )
    # All files are read before the minutes that a model takes.
    given, excluded = read_prompts(prompts or ()), read_excluded(exclude or ())

    from specrag.decoding.generator import SpeculativeGenerator
    from specrag.training.corpus import generate_corpus

    generator = SpeculativeGenerator.from_pretrained(target, drafter, prefix_cache_mb=0)
    report = generate_corpus(
        generator, given, settings, out, excluded=excluded, progress=show_progress()
    )
    if as_json:
        echo_json(report.to_dict())
        return
    _echo_report(report, own)


def _numbers(typed: str) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in typed.split(","))
    except ValueError as error:
        raise ConfigError(
            f"--temperatures needs numbers with commas between them, got {typed!r}",
            hint="such as --temperatures 0,0.7,1",
        ) from error


def _echo_report(report: CorpusReport, asked: int) -> None:
    counts, prompts = report.counts, report.prompts
    typer.echo(f"{report.path}: {counts.num_rows} answers, {counts.num_tokens} tokens")
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.kinds.most_common())
    echo_field("Kinds", kinds)
    echo_field("Finished", f"{counts.share_finished:.0%} of the answers ended by themselves")
    left_out = {
        "excluded": prompts.num_excluded,
        "repeated": prompts.num_repeated,
        "too long": prompts.num_too_long,
    }
    reasons = ", ".join(f"{count} {why}" for why, count in left_out.items() if count)
    echo_field("Prompts", f"{prompts.num_prompts}" + (f"; left out: {reasons}" if reasons else ""))
    if asked:
        echo_field("Own", f"{prompts.num_own} of {prompts.num_own_attempts} attempts")
    if prompts.num_own < asked:
        typer.echo(f"only {prompts.num_own} of {asked} instructions were found", err=True)
    echo_field(
        "This run",
        f"{report.num_new_rows} answers, {report.num_new_tokens} tokens"
        + (f" at {report.tokens_per_second:.0f} tokens/s" if report.num_new_rows else ""),
    )
