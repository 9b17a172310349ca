"""`specrag generate`: text from the target alone, no documents and no gate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specrag.cli.arguments import read_text
from specrag.cli.decoding_options import (
    Branching,
    Dtype,
    FrequencyPenalty,
    LogitBias,
    MaxTokens,
    MinP,
    MinTokens,
    NumSpeculativeTokens,
    Policy,
    PresencePenalty,
    Quantization,
    RepetitionPenalty,
    Samples,
    Seed,
    Stop,
    Strict,
    Temperature,
    TopK,
    TopLogprobs,
    TopP,
    Verification,
    chosen,
    parse_bias,
)
from specrag.cli.output import decoding_figures, echo_json, echo_json_line, echo_text
from specrag.errors import ConfigError, InputError

if TYPE_CHECKING:
    from specrag.decoding.generator import Generation, Prompt, SpeculativeGenerator
    from specrag.decoding.sampling import SamplingParams
    from specrag.decoding.stats import DecodingStats


def generate(
    ctx: typer.Context,
    prompt: Annotated[str, typer.Argument(help="The prompt; - reads standard input.")],
    model: Annotated[
        str, typer.Option(help="Embedded name, hub name, folder or .gguf file.")
    ] = "smollm2-135m-instruct",
    drafter: Annotated[str, typer.Option(help="Who guesses tokens; none: nobody.")] = "suffix",
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text instead of answering it.")
    ] = False,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="System message.")] = None,
    max_tokens: MaxTokens = 256,
    min_tokens: MinTokens = 0,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    top_k: TopK = 0,
    min_p: MinP = 0.0,
    repetition_penalty: RepetitionPenalty = 1.0,
    presence_penalty: PresencePenalty = 0.0,
    frequency_penalty: FrequencyPenalty = 0.0,
    logit_bias: LogitBias = None,
    seed: Seed = None,
    stop: Stop = None,
    n: Samples = 1,
    top_logprobs: TopLogprobs = 0,
    num_speculative_tokens: NumSpeculativeTokens = 15,
    branching: Branching = 4,
    policy: Policy = "goodput",
    verification: Verification = "match",
    strict: Strict = False,
    dtype: Dtype = "auto",
    quantization: Quantization = "auto",
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
    speculation = chosen(SpeculationConfig, ctx.params)
    biases = {**ctx.params, "logit_bias": parse_bias(logit_bias), "stop": tuple(stop or ())}
    params = chosen(SamplingParams, biases)
    if stream and n > 1:
        raise ConfigError(f"--stream shows one sample, got --n {n}", hint="leave one of them out")
    generator = SpeculativeGenerator.from_pretrained(
        model,
        drafter,
        dtype=dtype,
        quantization=quantization,
        config=speculation,
        prefix_cache_mb=0,
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
    if not text:
        raise InputError("the prompt is empty", hint="--raw continues a text: write its beginning")
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
    if params.n > 1:
        return generator.generate_batch([prompt], params)[0]

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
    typer.echo("" if stream else _texts(generation))
    if generator.target.no_speculation:
        typer.echo(f"decoded plainly: {generator.target.no_speculation}", err=True)
    figures = decoding_figures(_stats(generation), speed, generator.drafter.name)
    typer.echo(f"{_num_tokens(generation)} tokens, {figures}, seed {generation.seed}", err=True)


def _texts(generation: Generation) -> str:
    if not generation.others:
        return generation.text
    numbered = enumerate(generation.samples, start=1)
    return "\n\n".join(f"[{number}] {sample.text}" for number, sample in numbered)


def _tokens_per_second(generation: Generation) -> float:
    """Speed of all samples after their first tokens, which the prompt's pass gives."""
    spent = generation.timings.decode_ms
    later = _num_tokens(generation) - len(generation.samples)
    return 1e3 * later / spent if spent else 0.0


def _num_tokens(generation: Generation) -> int:
    return sum(len(sample.token_ids) for sample in generation.samples)


def _stats(generation: Generation) -> DecodingStats:
    from specrag.decoding.stats import DecodingStats

    total = DecodingStats()
    for sample in generation.samples:
        total.add(sample.stats)
    return total


def _to_dict(
    generation: Generation, generator: SpeculativeGenerator, speed: float
) -> dict[str, Any]:
    timings = generation.timings
    spent = {**asdict(timings), "decode_ms": timings.decode_ms, "tokens_per_second": speed}
    samples = [_sample(sample) for sample in generation.samples]
    return {
        **samples[0],
        **({"samples": samples} if generation.others else {}),
        "usage": {
            "prompt_tokens": generation.num_prompt_tokens,
            "completion_tokens": _num_tokens(generation),
        },
        "timings": {name: round(value, 2) for name, value in spent.items()},
        "model": generator.target.name,
        "drafter": generator.drafter.name,
        "no_speculation": generator.target.no_speculation,
    }


def _sample(generation: Generation) -> dict[str, Any]:
    return {
        "text": generation.text,
        "token_ids": generation.token_ids,
        "logprobs": generation.logprobs,
        "top_logprobs": generation.top_logprobs,
        "finish_reason": generation.finish_reason,
        "speculation": generation.stats.to_dict(),
        "seed": generation.seed,
    }
