"""`specrag ask`: one question, one answer with its sources."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from specrag.cli.arguments import given, load_rag, read_question
from specrag.cli.output import echo_answer, echo_json, echo_json_line, echo_text

if TYPE_CHECKING:
    from specrag.rag.events import Event


def ask(
    question: Annotated[str, typer.Argument(help="The question; - reads standard input.")],
    docs: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Ask this folder or file instead of the index."),
    ] = None,
    pipeline: Annotated[
        str, typer.Option("--pipeline", "-p", help="Name or TOML file of a pipeline.")
    ] = "qa",
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="auto|always|never",
            help="Whether the gate decides about the lookup; by default as in the pipeline.",
        ),
    ] = None,
    k: Annotated[int | None, typer.Option("-k", min=1, help="Passages to look up.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Most tokens of the answer.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="0 is greedy, higher is more random.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the random draws.")] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Show the text as it comes.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON; with --stream, one event a line.")
    ] = False,
) -> None:
    """Answers a question from documents, with citations."""
    question = read_question(question)
    options = given(max_tokens=max_tokens, temperature=temperature, seed=seed)
    if mode is not None:
        from specrag.rag.config import check_mode

        check_mode(mode)  # here too: loading takes seconds
    rag = load_rag(pipeline, docs)
    if mode != "never":
        rag.warm_up(wait=False)  # beside the closed-book draft
    events = rag.stream(question, mode=mode, k=k, params=replace(rag.params, **options))
    if as_json:
        _print_json(events, stream)
    else:
        _print_text(events, stream)


def _print_json(events: Iterator[Event], stream: bool) -> None:
    for event in events:
        if stream:
            echo_json_line({"type": event.type, **event.to_dict()})
        elif event.type == "done":
            echo_json(event.to_dict())


def _print_text(events: Iterator[Event], stream: bool) -> None:
    from specrag.rag.events import DoneEvent, TokenEvent

    for event in events:
        if stream and isinstance(event, TokenEvent):
            echo_text(event.text)
        elif isinstance(event, DoneEvent):
            typer.echo("" if stream else event.answer.text)
            echo_answer(event.answer)
