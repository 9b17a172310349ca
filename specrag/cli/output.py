"""What several commands print alike. Plain text for 80 columns; colours on terminals only."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from typing import TYPE_CHECKING, Any

from typer import echo, style

if TYPE_CHECKING:
    from specrag.decoding.stats import DecodingStats
    from specrag.rag.answer import Answer
    from specrag.rag.citations import Citation
    from specrag.retrieval.document import Passage

WIDTH = 80
_LABEL_WIDTH = 12


def echo_json(value: Any) -> None:
    """Prints a value as indented JSON.

    Args:
        value: Plain data.
    """
    echo(json.dumps(value, indent=2))


def echo_json_line(value: Any) -> None:
    """Prints a value as JSON on one line.

    Args:
        value: Plain data.
    """
    echo(json.dumps(value))


def echo_text(text: str) -> None:
    """Prints a part of a longer text at once, as it stands.

    Args:
        text: May be empty.
    """
    echo(text, nl=False)


def echo_field(label: str, text: str) -> None:
    """Prints a label and a text beside it, wrapped.

    Args:
        label: At most a few letters.
        text: Of any length.
    """
    indent = " " * _LABEL_WIDTH
    body = textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent)
    echo(bold(f"{label:<{_LABEL_WIDTH}}") + body.lstrip())


def echo_quote(text: str) -> None:
    """Prints a piece of a document, indented and wrapped anew.

    Args:
        text: Its line breaks and runs of spaces become single spaces.
    """
    indent = " " * 4
    shown = " ".join(text.split())
    echo(textwrap.fill(shown, WIDTH, initial_indent=indent, subsequent_indent=indent))


def bold(text: str) -> str:
    """Makes a text bold where standard output is a terminal that wants colours.

    Args:
        text: What to set off.
    """
    plain = bool(os.environ.get("NO_COLOR")) or not sys.stdout.isatty()
    return text if plain else style(text, bold=True)


def echo_answer(answer: Answer) -> None:
    """Prints all of an answer but its text: sources, decision, what decoding did, times.

    Args:
        answer: A finished answer.
    """
    for citation in answer.citations:
        echo()
        _echo_citation(citation)
    echo()
    echo_field("Gate", answer.gate.reason)
    counts = decoding_figures(answer.speculation, answer.timings.tokens_per_second, answer.drafter)
    cut = " (cut off at the limit)" if answer.finish_reason == "length" else ""
    echo_field("Decoding", f"{answer.usage.completion_tokens} tokens{cut}, {counts}")
    echo_field("Time", _times(answer))


def decoding_figures(stats: DecodingStats, tokens_per_second: float, drafter: str) -> str:
    """Says in one line what speculation did.

    Args:
        stats: Counters of one answer.
        tokens_per_second: Of its decoding.
        drafter: Name of the drafter.
    """
    off = f", speculation off for {stats.num_off_passes} passes" if stats.num_off_passes else ""
    return (
        f"{tokens_per_second:.1f} tokens/s, mean acceptance length "
        f"{stats.mean_acceptance_length:.2f}, {stats.num_accepted_tokens} of "
        f"{stats.num_draft_tokens} drafted tokens accepted (drafter {drafter}){off}"
    )


def place_of(found: Citation | Passage) -> str:
    """Returns where a quote or passage stands, for people.

    Args:
        found: The quote or passage.
    """
    place = f"{found.document}, characters {found.start}-{found.end}"
    place += f", page {found.page}" if found.page else ""
    return place + (f", line {found.line}" if found.line else "")


def _echo_citation(citation: Citation) -> None:
    place = place_of(citation)
    echo(f"{bold(f'[{citation.n}]')} {place}, score {citation.score:.2f}")
    echo_quote(f'"{citation.quote}"')


def _times(answer: Answer) -> str:
    spent = answer.timings
    parts = {
        "gate": spent.gate_ms,
        "lookup": spent.lookup_ms,
        "prefill": spent.prefill_ms,
        "decoding": spent.decode_ms,
    }
    shown = ", ".join(f"{name} {value / 1e3:.2f} s" for name, value in parts.items() if value)
    return f"{spent.total_ms / 1e3:.2f} s: {shown}"
