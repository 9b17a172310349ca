"""`specrag bench`: how much faster speculation is than plain decoding, on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from specrag.cli.decoding_options import (
    Branching,
    Dtype,
    NumSpeculativeTokens,
    Policy,
    Strict,
    chosen,
)


def bench(
    ctx: typer.Context,
    questions: Annotated[
        Path, typer.Argument(help="JSON lines with question_id, category and turns (Spec-Bench).")
    ],
    categories: Annotated[
        str, typer.Option(help="Categories to measure, with commas; all by default.")
    ] = "",
    per_category: Annotated[int, typer.Option(min=1, help="Prompts of each category.")] = 10,
    drafters: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Drafter; repeat it for several.")
    ] = None,
    model: Annotated[str, typer.Option(help="Target to decode with.")] = "smollm2-135m-instruct",
    num_speculative_tokens: NumSpeculativeTokens = 15,
    branching: Branching = 4,
    policy: Policy = "goodput",
    strict: Strict = False,
    dtype: Dtype = "auto",
    max_tokens: Annotated[int, typer.Option(min=2, help="Most tokens of an answer.")] = 128,
    rounds: Annotated[int, typer.Option(min=1, help="Times to decode; the fastest counts.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measures drafters against plain decoding of the same engine, interleaved."""
    from tqdm import tqdm

    from specrag.decoding.budget import SpeculationConfig
    from specrag.decoding.drafter import named_drafter
    from specrag.decoding.generator import SpeculativeGenerator
    from specrag.evaluation.prompts import load_prompts
    from specrag.evaluation.speed.measure import measure_speed, speed_report

    names = drafters or ["suffix"]
    config = chosen(SpeculationConfig, ctx.params)
    for name in names[1:]:
        named_drafter(name)  # a typo should not cost the time of loading the target
    wanted = [name.strip() for name in categories.split(",") if name.strip()]
    prompts = load_prompts(questions, wanted, per_category)
    # Plain decoding asks for no costs, and the other drafters need them.
    first = next((name for name in names if name != "none"), "none")
    generator = SpeculativeGenerator.from_pretrained(model, first, dtype=dtype, config=config)
    with tqdm(total=len(prompts), desc="prompts", disable=None) as bar:
        report = speed_report(
            measure_speed(
                generator,
                prompts,
                names,
                max_tokens=max_tokens,
                rounds=rounds,
                on_progress=lambda: bar.update() and None,
            )
        )
    if generator.target.no_speculation:
        typer.echo(f"decoded plainly: {generator.target.no_speculation}", err=True)
    typer.echo(json.dumps(report, indent=2) if as_json else _table(report))


def _table(report: dict[str, Any]) -> str:
    machine = report["machine"]
    lines = [
        f"{machine['processor']}, {machine['threads']} threads, {machine['cpu_capability']}, "
        f"torch {machine['torch']}",
        f"{'category':<16}{'drafter':<16}{'prompts':>8}{'tau':>6}{'drafted':>9}{'accepted':>9}"
        f"{'off':>6}{'tok/s':>7}{'speedup':>9}{'+prefill':>10}{'equal':>7}",
    ]
    for row in report["results"]:
        counts = row["speculation"]
        lines.append(
            f"{row['category']:<15} {row['drafter']:<15} {row['num_prompts']:>8}"
            f"{row['mean_acceptance_length']:>6.2f}{counts['num_draft_tokens']:>9}"
            f"{counts['num_accepted_tokens']:>9}{counts['num_off_passes']:>6}"
            f"{row['tokens_per_second']:>7.1f}{_times(row['speedup']):>9}"
            f"{row['speedup_with_prefill']:>9.2f}x{row['num_equal_to_plain']:>7}"
        )
    return "\n".join(lines)


def _times(factor: float | None) -> str:
    return "-" if factor is None else f"{factor:.2f}x"
