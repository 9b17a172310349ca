"""What the commands of `specrag index` share: options, and how changes are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specrag.cli.arguments import show_progress
from specrag.locking import WAIT_SECONDS

if TYPE_CHECKING:
    from specrag.retrieval.build import BuildReport
    from specrag.retrieval.sources.source import LoadFailure
    from specrag.retrieval.sync import SyncReport

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Stop at the first file that cannot be used.")
]
Wait = Annotated[
    float, typer.Option(min=0.0, help="Seconds to wait for another process that changes it.")
]


def source_of(index: str) -> str | Path:
    """Returns a recipe's name, or else a path if there is something.

    Args:
        index: As typed.
    """
    from specrag.home import known_definitions

    path = Path(index)
    is_path = path.suffix != ".toml" and path.exists()
    return path if is_path and index not in known_definitions("indexes") else index


def build_report(
    index: str, *, force: bool = False, strict: bool = False, wait: float = WAIT_SECONDS
) -> tuple[str, BuildReport]:
    """Brings an index up to date and tells what was left out; returns its name and the report.

    Args:
        index: As typed.
        force: Whether to write everything anew.
        strict: Whether the first file that cannot be used is an error.
        wait: Seconds to wait for another writer.
    """
    from specrag.rag.named_indexes import build_named

    recipe, report = build_named(
        source_of(index), progress=show_progress(), force=force, strict=strict, wait_seconds=wait
    )
    echo_failures(report.failures, report.changes.passed_over)
    return recipe.name, report


def echo_failures(
    failures: Sequence[LoadFailure], passed_over: Mapping[str, int] | None = None
) -> None:
    """Names each file that was left out, and how many they are.

    Args:
        failures: The files.
        passed_over: How many files match no pattern, by suffix.
    """
    for failure in failures:
        typer.echo(f"left out {failure}", err=True)
    if passed_over:
        most = sorted(passed_over.items(), key=lambda pair: (-pair[1], pair[0]))[:5]
        kinds = ", ".join(f"{count} {suffix or 'without suffix'}" for suffix, count in most)
        typer.echo(f"passed over, of other kinds: {kinds}", err=True)
    if len(failures) > 1:
        typer.echo(f"{len(failures)} files were left out; the rest is indexed", err=True)


def echo_report(name: str, report: BuildReport) -> None:
    """Prints one line about an index.

    Args:
        name: Of the index.
        report: What was done.
    """
    typer.echo(
        f"{name}: {report.num_documents} documents, {report.num_passages} passages, "
        f"version {report.index_version}, {state(report.built, report.seconds)}"
    )


def state(built: bool, seconds: float) -> str:
    """Returns what was done, in words.

    Args:
        built: Whether anything was.
        seconds: How long it took.
    """
    return f"built in {seconds:.1f} s" if built else "up to date"


def changes_dict(changes: SyncReport) -> dict[str, Any]:
    """Returns what changed as plain data.

    Args:
        changes: By a sync.
    """
    failures = sorted(changes.failures, key=lambda failure: failure.path)
    return {
        "added": changes.added,
        "updated": changes.updated,
        "removed": changes.removed,
        "unchanged": changes.num_unchanged,
        "passed_over": changes.passed_over,
        "failures": [{"path": str(one.path), "reason": one.reason} for one in failures],
    }
