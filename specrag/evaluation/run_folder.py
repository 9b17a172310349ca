"""A folder that keeps what a run has done so far, so that a run that was ended goes on there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specrag.errors import ConfigError, InputError

LOCK_NAME = ".lock"
_RUN_NAME = "run.json"


def check_same_run(folder: Path, rows_name: str, wanted: Mapping[str, Any], restart: bool) -> None:
    """Checks that what a folder keeps is of the same run, and notes which run it is.

    Args:
        folder: Of the run.
        rows_name: Name of the file in it that keeps what is done.
        wanted: All that the rows depend on, as plain data.
        restart: Whether to throw away what an earlier run has left.

    Raises:
        ConfigError: The folder holds a run of other settings.
        InputError: What is noted cannot be read.
    """
    path = folder / _RUN_NAME
    # What JSON makes of it: tuples are lists there.
    plain = json.loads(json.dumps(wanted))
    if restart:
        (folder / rows_name).unlink(missing_ok=True)
    elif path.exists():
        kept = _run_file(path)
        other = [name for name in plain if kept.get(name) != plain[name]]
        if other:
            raise ConfigError(
                f"{str(folder)!r} holds a run with another {', '.join(other)}",
                hint="choose another folder with --out, or begin anew with --restart",
            )
        return
    elif (folder / rows_name).exists():
        raise ConfigError(
            f"{str(folder)!r} holds answers but not what they are of ({_RUN_NAME})",
            hint="choose another folder with --out, or begin anew with --restart",
        )
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(f"{json.dumps(plain, indent=2, ensure_ascii=False)}\n", encoding="utf-8")
    partial.replace(path)


def to_line(row: Mapping[str, Any]) -> bytes:
    """Returns a row as a line of JSON.

    Args:
        row: Plain data.
    """
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def read_line(line: bytes) -> dict[str, Any] | None:
    """Returns a line's row; None for one that a kill cut off.

    Args:
        line: With its line end, where it has one.
    """
    try:
        row = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _run_file(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read {str(path)!r}: {error}", hint="begin anew with --restart"
        ) from error
    return content if isinstance(content, dict) else {}
