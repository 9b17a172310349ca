"""The options by which commands say how to choose tokens and how much to speculate."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import typer

from specrag.errors import ConfigError

T = TypeVar("T")

MaxTokens = Annotated[int, typer.Option(help="Most tokens to generate.")]
MinTokens = Annotated[int, typer.Option(help="Fewest tokens before an end.")]
Temperature = Annotated[float, typer.Option(help="0 is greedy, higher more random.")]
TopP = Annotated[float, typer.Option(help="Probability mass kept; 1.0 keeps all.")]
TopK = Annotated[int, typer.Option(help="Most probable tokens kept; 0 keeps all.")]
MinP = Annotated[float, typer.Option(help="Least share of the best probability.")]
RepetitionPenalty = Annotated[float, typer.Option(help="Above 1.0 discourages repetition.")]
PresencePenalty = Annotated[float, typer.Option(help="Taken off tokens already said.")]
FrequencyPenalty = Annotated[float, typer.Option(help="Taken off for each time said.")]
LogitBias = Annotated[
    list[str] | None, typer.Option(metavar="ID=BIAS", help="Added to a token's logit.")
]
Seed = Annotated[int | None, typer.Option(help="Seed; a new one by default.")]
Stop = Annotated[list[str] | None, typer.Option(metavar="TEXT", help="Text that ends the answer.")]
Samples = Annotated[int, typer.Option("--n", help="Samples of the prompt.")]
TopLogprobs = Annotated[int, typer.Option(help="Likeliest tokens listed a position, in JSON.")]
NumSpeculativeTokens = Annotated[
    int, typer.Option(help="Most drafted tokens a pass; 0 decodes plainly.")
]
Branching = Annotated[int, typer.Option(help="Most alternatives for a drafted token.")]
Policy = Annotated[
    str,
    typer.Option(metavar="goodput|recent_acceptance|fixed", help="How much is drafted."),
]
Verification = Annotated[
    str,
    typer.Option(
        metavar="match|rejection", help="match keeps the seed's tokens, rejection only their law."
    ),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="The bits of plain decoding, in any precision.")
]
Dtype = Annotated[str, typer.Option(metavar="auto|float32|bfloat16|float16", help="Precision.")]
Quantization = Annotated[
    str, typer.Option(metavar="auto|none|float16|int8", help="How weights are packed for a CPU.")
]


def chosen(kind: Callable[..., T], options: Mapping[str, Any]) -> T:
    """Makes settings of the options of a command that bear the names of their fields.

    Args:
        kind: A dataclass of settings.
        options: All options of the command by name, as parsed.
    """
    names = inspect.signature(kind).parameters
    return kind(**{name: value for name, value in options.items() if name in names})


def parse_bias(words: list[str] | None) -> dict[int, float]:
    """Returns the biases by token that a user typed as ``ID=BIAS``.

    Args:
        words: As typed.

    Raises:
        ConfigError: One is no such pair.
    """
    found = {}
    for word in words or ():
        token, _, bias = word.partition("=")
        try:
            found[int(token)] = float(bias)
        except ValueError as error:
            raise ConfigError(
                f"--logit-bias needs a token id and a number, got {word!r}",
                hint="such as --logit-bias 42=-100",
            ) from error
    return found
