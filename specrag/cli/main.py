"""The `specrag` command.

To add a command: write ``specrag/cli/<noun>.py`` with either a function (one command) or a
``typer.Typer`` named ``app`` (a group of them), and add one line to ``COMMANDS`` below. Its
module is imported only when that command is the one typed, and imports what is heavy (torch,
faiss, fastapi ...) inside its functions, so that help is immediate. Errors that a user can mend
are raised as `SpecragError`; nothing else is caught here.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from specrag.errors import SpecragError
from specrag.registry import Registry

# name: ("module:attribute", one line for `specrag --help`)
COMMANDS: dict[str, tuple[str, str]] = {
    "ask": ("specrag.cli.ask:ask", "Answer a question from documents, with citations."),
    "generate": ("specrag.cli.generate:generate", "Generate text without documents."),
    "index": ("specrag.cli.index_benchmark:app", "Build, change, search and check indexes."),
    "gate": ("specrag.cli.gate:app", "Explain and calibrate the retrieval gate."),
    "serve": ("specrag.cli.serve:serve", "Serve POST /ask over HTTP."),
    "eval": ("specrag.cli.eval:app", "Measure answers on sets of questions; compare runs."),
    "bench": (
        "specrag.cli.bench:bench",
        "Measure drafters and other engines against plain decoding.",
    ),
    "tune": ("specrag.cli.tune:tune", "Find the drafter and settings that are fastest here."),
    "peers": ("specrag.cli.peers:app", "Install other engines to measure beside this one."),
    "advise": ("specrag.cli.advise:advise", "Say whether speculation pays, and what to use."),
    "train": ("specrag.cli.train_heads:app", "Make text to train on, and train drafters."),
    "models": ("specrag.cli.models:app", "List and fetch the embedded models."),
}


def build_app(args: Sequence[str]) -> typer.Typer:
    """Assembles the application for one command line.

    Args:
        args: The arguments; only the command they name is imported.

    Returns:
        The application; commands that were not named are there by name and help text alone.
    """
    app = typer.Typer(
        name="specrag",
        help="RAG that drafts before it decodes and thinks before it searches.",
        context_settings={"help_option_names": ["-h", "--help"]},
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain help: it is copied into documents, and starts sooner
    )
    app.callback()(_options)
    loaders: Registry[Any] = Registry("command", {name: COMMANDS[name][0] for name in COMMANDS})
    # No option before the command takes a value, so the first plain word is the command.
    typed = next((word for word in args if not word.startswith("-")), None)
    completing = "_SPECRAG_COMPLETE" in os.environ
    for name, (_, summary) in COMMANDS.items():
        loaded = loaders.get(name) if completing or name == typed else _placeholder
        if isinstance(loaded, typer.Typer):
            app.add_typer(loaded, name=name, help=summary)
        else:
            app.command(name, short_help=summary)(loaded)
    return app


def console() -> None:
    """Runs the command line as a process of its own, and ends the process."""
    try:
        main()
    except SystemExit as leaving:
        status = leaving.code
    else:
        status = 0
    if "torch" in sys.modules and isinstance(status, int):
        # Taking torch and transformers apart takes more than a second and gives nothing back; a
        # thread that still loads a model may even crash in it.
        logging.shutdown()
        sys.stderr.flush()
        os._exit(status)
    raise SystemExit(status)


def main() -> None:
    """Runs the command line; a user's error is two lines on stderr and exit status 2."""
    args = sys.argv[1:]
    try:
        try:
            build_app(args)(args, prog_name="specrag")
        finally:
            sys.stdout.flush()  # a closed pipe shows here, not at the interpreter's exit
    except SpecragError as error:
        _report(error)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        # What is still buffered has nowhere to go, and Python would complain when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"specrag {version('specrag')}")
        raise typer.Exit


def _options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None: ...


def _placeholder() -> None:
    """Stands for a command that was not typed."""


def _report(error: SpecragError) -> None:
    print(f"error: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)
