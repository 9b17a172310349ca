"""What several commands take from their user: a text, and the pipeline that answers it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from specrag.errors import InputError

if TYPE_CHECKING:
    from specrag.rag.build import SpecRAG
    from specrag.rag.config import PipelineConfig
    from specrag.retrieval.retriever import Retriever


def read_text(argument: str) -> str:
    """Returns the text of an argument; ``-`` stands for standard input.

    Args:
        argument: As typed.

    Raises:
        InputError: It is not text.
    """
    try:
        # `echo` and editors end a text with a line break that is not part of it.
        text = sys.stdin.read().removesuffix("\n") if argument == "-" else argument
        text.encode()  # what the shell passed on undecoded shows as lone surrogates
    except UnicodeError as error:
        raise InputError("the text is not valid UTF-8", hint="convert it first") from error
    return text


def read_question(argument: str) -> str:
    """Returns the question of an argument; a blank one is refused before anything is loaded.

    Args:
        argument: As typed, ``-`` for standard input.

    Raises:
        InputError: It is blank or not text.
    """
    question = read_text(argument)
    if not question.strip():
        raise InputError(f"the question is blank: {question!r}", hint="ask something")
    return question


def given(**options: Any) -> dict[str, Any]:
    """Returns the options that were typed: those that are not None.

    Args:
        **options: Option values by name.
    """
    return {name: value for name, value in options.items() if value is not None}


def show_progress() -> bool:
    """Tells whether progress bars have a terminal to be drawn on."""
    return sys.stderr.isatty()


def load_rag(
    pipeline: str | PipelineConfig,
    docs: str | None = None,
    index: str | Retriever | None = None,
) -> SpecRAG:
    """Loads a pipeline, with progress on standard error.

    Args:
        pipeline: Its name, the path of its file, or its definition.
        docs: Documents to ask instead of its index.
        index: Another index to ask instead, by name or opened.
    """
    from specrag.rag.config import load_pipeline

    if isinstance(pipeline, str):
        load_pipeline(pipeline)  # a typo should not cost the time of importing torch

    from specrag.rag.build import SpecRAG

    return SpecRAG.load(pipeline, docs=docs, index=index, progress=show_progress())
