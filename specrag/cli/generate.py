"""`specrag generate`: text from the target alone, no documents and no gate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specrag.cli.arguments import read_text
from specrag.cli.output import decoding_figures, echo_json, echo_json_line, echo_text
from specrag.errors import ConfigError

if TYPE_CHECKING:
    from specrag.decoding.generator import Generation, Prompt, SpeculativeGenerator
    from specrag.decoding.sampling import SamplingParams


def generate(
    prompt: Annotated[str, typer.Argument(help="The prompt; - reads standard input.")],
    model: Annotated[
        str, typer.Option(help="Embedded name, hub name, folder or .gguf file.")
    ] = "smollm2-135m-instruct",
    drafter: Annotated[str, typer.Option(help="Who guesses tokens; none: nobody.")] = "suffix",
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text instead of answering it.")
    ] = False,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="System message.")] = None,
    max_tokens: Annotated[int, typer.Option(help="Most tokens to generate.")] = 256,
    temperature: Annotated[float, typer.Option(help="0 is greedy, higher more random.")] = 0.0,
    top_p: Annotated[float, typer.Option(help="Probability mass kept; 1.0 keeps all.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Most probable tokens kept; 0 keeps all.")] = 0,
    min_p: Annotated[float, typer.Option(help="Least share of the best probability.")] = 0.0,
    repetition_penalty: Annotated[
        float, typer.Option(help="Above 1.0 discourages repetition.")
    ] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Seed; a new one by default.")] = None,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Text that ends the answer.")
    ] = None,
    num_speculative_tokens: Annotated[
        int, typer.Option(help="Drafted tokens a pass; 0 decodes plainly.")
    ] = 7,
    dtype: Annotated[
        str, typer.Option(metavar="auto|float32|bfloat16|float16", help="Precision.")
    ] = "auto",
    stream: Annotated[bool, typer.Option("--stream", help="Show the text as it comes.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON; with --stream, one event a line.")
    ] = False,
) -> None:
    """Generates text with speculative decoding; statistics go to standard error."""
    asked = _prompt(read_text(prompt), raw, system)
    from specrag.decoding.budget import SpeculationConfig
    from specrag.decoding.generator import SpeculativeGenerator
    from specrag.decoding.sampling import SamplingParams

    # Both are checked here, before the seconds that loading takes.
    speculation = SpeculationConfig(num_speculative_tokens)
    stops = tuple(stop or ())
    params = SamplingParams(
        temperature, top_p, top_k, min_p, repetition_penalty, max_tokens, stops, seed=seed
    )
    generator = SpeculativeGenerator.from_pretrained(
        model, drafter, dtype=dtype, config=speculation
    )
    generation = _run(generator, asked, params, _shower(stream, as_json))
    _print(generation, generator, stream, as_json)


def _prompt(text: str, raw: bool, system: str | None) -> Prompt:
    if not raw:
        turns = [("system", system), ("user", text)]
        return [{"role": role, "content": said} for role, said in turns if said is not None]
    if system is not None:
        raise ConfigError(
            "--system needs the chat format, which --raw switches off",
            hint="put the text at the beginning of the prompt",
        )
    return text


def _shower(stream: bool, as_json: bool) -> Callable[[str], None]:
    if not stream:
        return lambda text: None
    if as_json:
        return lambda text: echo_json_line({"type": "token", "text": text}) if text else None
    return echo_text


def _run(
    generator: SpeculativeGenerator,
    prompt: Prompt,
    params: SamplingParams,
    show: Callable[[str], None],
) -> Generation:
    from specrag.decoding.generator import result_of

    session = generator.open([generator.request(prompt, params)])
    try:
        while not session.finished:
            show(session.step()[0].text)
    finally:
        session.close()
    return result_of(session.rows[0], session.timings)


def _print(
    generation: Generation, generator: SpeculativeGenerator, stream: bool, as_json: bool
) -> None:
    speed = _tokens_per_second(generation)
    if as_json:
        result = _to_dict(generation, generator, speed)
        if stream:
            echo_json_line({"type": "done", **result})
        else:
            echo_json(result)
        return
    typer.echo("" if stream else generation.text)
    figures = decoding_figures(generation.stats, speed, generator.drafter.name)
    typer.echo(f"{len(generation.token_ids)} tokens, {figures}, seed {generation.seed}", err=True)


def _tokens_per_second(generation: Generation) -> float:
    """Speed after the first token, which the prompt's pass gives."""
    spent = generation.timings.decode_ms
    return 1e3 * (len(generation.token_ids) - 1) / spent if spent else 0.0


def _to_dict(
    generation: Generation, generator: SpeculativeGenerator, speed: float
) -> dict[str, Any]:
    stats, timings = generation.stats, generation.timings
    spent = {**asdict(timings), "decode_ms": timings.decode_ms, "tokens_per_second": speed}
    return {
        "text": generation.text,
        "token_ids": generation.token_ids,
        "logprobs": generation.logprobs,
        "finish_reason": generation.finish_reason,
        "usage": {
            "prompt_tokens": generation.num_prompt_tokens,
            "completion_tokens": len(generation.token_ids),
        },
        "speculation": {
            **asdict(stats),
            "mean_acceptance_length": round(stats.mean_acceptance_length, 4),
        },
        "timings": {name: round(value, 2) for name, value in spent.items()},
        "seed": generation.seed,
        "model": generator.target.name,
        "drafter": generator.drafter.name,
    }
