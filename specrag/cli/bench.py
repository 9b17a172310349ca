"""`specrag bench`: how much faster speculation is than plain decoding, on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from specrag.errors import ConfigError


def bench(
    questions: Annotated[
        Path, typer.Argument(help="JSON lines with question_id, category and turns (Spec-Bench).")
    ],
    categories: Annotated[
        str, typer.Option(help="Categories to measure, with commas; all by default.")
    ] = "",
    per_category: Annotated[int, typer.Option(min=1, help="Prompts of each category.")] = 10,
    drafters: Annotated[str, typer.Option(help="Drafters, with commas.")] = "suffix",
    model: Annotated[str, typer.Option(help="Target to decode with.")] = "smollm2-135m-instruct",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    max_tokens: Annotated[int, typer.Option(min=2, help="Most tokens of an answer.")] = 128,
    rounds: Annotated[int, typer.Option(min=1, help="Times to decode; the fastest counts.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measures drafters against plain decoding of the same engine, interleaved."""
    from tqdm import tqdm

    from specrag.decoding.generator import SpeculativeGenerator
    from specrag.evaluation.prompts import load_prompts
    from specrag.evaluation.speed import measure_speed, speed_report

    names = [name for name in drafters.split(",") if name]
    if not names:
        raise ConfigError(f"no drafter is named in {drafters!r}", hint="such as --drafters suffix")
    wanted = [name for name in categories.split(",") if name]
    prompts = load_prompts(questions, wanted, per_category)
    generator = SpeculativeGenerator.from_pretrained(model, names[0], dtype=dtype)
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
    typer.echo(json.dumps(report, indent=2) if as_json else _table(report))


def _table(report: dict[str, Any]) -> str:
    machine = report["machine"]
    lines = [
        f"{machine['processor']}, {machine['threads']} threads, {machine['cpu_capability']}, "
        f"torch {machine['torch']}",
        f"{'category':<15}{'drafter':<15}{'prompts':>8}{'tau':>7}{'tok/s':>8}{'speedup':>9}"
        f"{'+prefill':>10}{'equal':>8}",
    ]
    for row in report["results"]:
        lines.append(
            f"{row['category']:<15}{row['drafter']:<15}{row['num_prompts']:>8}"
            f"{row['mean_acceptance_length']:>7.2f}{row['tokens_per_second']:>8.1f}"
            f"{row['speedup']:>8.2f}x{row['speedup_with_prefill']:>9.2f}x"
            f"{row['num_equal_to_plain']:>8}"
        )
    return "\n".join(lines)
