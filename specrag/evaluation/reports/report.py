"""The JSON that every measuring command writes: figures, and all that it takes to repeat them."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from specrag.errors import InputError
from specrag.evaluation.machine import commit, machine, versions

SCHEMA = 1
Kind = Literal["qa", "speed", "tuning", "retrieval"]
KINDS: tuple[Kind, ...] = ("qa", "speed", "tuning", "retrieval")


@dataclass(frozen=True, slots=True)
class Report:
    """What one run found.

    Attributes:
        kind: ``qa``, ``speed``, ``tuning`` or ``retrieval``; says what ``figures`` holds.
        title: One line for people.
        configuration: All settings that the figures depend on.
        figures: The figures, by the kind's own layout.
        seed: Of sampling items and of intervals.
        command: What was typed.
        created_at: ISO 8601, UTC.
        commit: Of the source, None for an installed package.
        machine: Processor, threads, versions of Python and torch.
        versions: Of the packages that decide what comes out.
        schema: Version of this layout.
    """

    kind: Kind
    title: str
    configuration: Mapping[str, Any]
    figures: Mapping[str, Any]
    seed: int = 0
    command: str = field(default_factory=lambda: shlex.join(["specrag", *sys.argv[1:]]))
    created_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    commit: str | None = field(default_factory=commit)
    machine: Mapping[str, Any] = field(default_factory=machine)
    versions: Mapping[str, str] = field(default_factory=versions)
    schema: int = SCHEMA

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as plain data."""
        return asdict(self)

    def save(self, path: Path) -> None:
        """Writes the report; what was there is replaced whole or not at all.

        Args:
            path: Of the JSON file, in a folder that exists.
        """
        partial = path.with_name(f".{path.name}.partial")
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False)
        partial.write_text(f"{text}\n", encoding="utf-8")
        partial.replace(path)


def load_report(path: Path) -> Report:
    """Reads a report.

    Args:
        path: A JSON file, or the folder of a run, whose ``report.json`` is meant.

    Raises:
        InputError: It is missing, is no report, or is one of another version.
    """
    file = path / "report.json" if path.is_dir() else path
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read the report {str(file)!r}: {error}",
            hint="give a report.json, or the folder that a measuring command wrote",
        ) from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise InputError(f"{str(file)!r} is no report of version {SCHEMA}", hint="measure again")
    try:
        return Report(**content)
    except TypeError as error:
        raise InputError(f"{str(file)!r} is no whole report: {error}") from error
