"""Two reports of the same questions held against each other, pair by pair, with intervals."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from specrag.errors import ConfigError, InputError
from specrag.evaluation.metrics.intervals import paired_difference, ratio_interval
from specrag.evaluation.reports.report import Report, load_report
from specrag.evaluation.reports.terminal import aligned

_ITEMS_NAME = "items.jsonl"
_EXTRA = ("usage", "latency_ms")  # compared beside the scores


def compare(first: Path, second: Path, seed: int = 0) -> dict[str, Any]:
    """Returns how much the second report differs from the first, as plain data.

    Question-answering runs are compared by mode over the questions that both have; speed reports
    by category and arm over the prompts that both have, as a ratio of tokens per second.

    Args:
        first: A report, or the folder of a run.
        second: Another of the same kind and the same questions.
        seed: Of the intervals.

    Raises:
        InputError: One cannot be read.
        ConfigError: They are of different kinds or different sets.
    """
    a, b = load_report(first), load_report(second)
    if a.kind != b.kind:
        raise ConfigError(f"a report of kind {a.kind} and one of kind {b.kind} cannot be compared")
    _check_same_set(a, b)
    if a.kind == "qa":
        rows, notes = _qa_rows(first, second, seed)
    elif a.kind == "speed":
        rows, notes = _speed_rows(a, b, seed)
    else:
        raise ConfigError(
            f"reports of kind {a.kind} cannot be compared", hint="compare qa or speed"
        )
    notes += _differing(a, b)
    return {
        "kind": a.kind,
        "first": str(first),
        "second": str(second),
        "rows": rows,
        "notes": notes,
    }


def render_comparison(found: Mapping[str, Any]) -> str:
    """Returns a comparison as a text table.

    Args:
        found: As ``compare`` returns it.
    """
    what = "ratio" if found["kind"] == "speed" else "difference"
    rows = [["group", "measure", "first", "second", f"{what} (95 %)", "items", ""]]
    for row in found["rows"]:
        low, high = row["low"], row["high"]
        change = "-" if low is None else f"{row['difference']:+.3f} ({low:+.3f} to {high:+.3f})"
        mark = "*" if row["significant"] else ""
        rows.append(
            [
                row["group"],
                row["measure"],
                f"{row['a']:.3f}",
                f"{row['b']:.3f}",
                change,
                str(row["num_items"]),
                mark,
            ]
        )
    head = f"first: {found['first']}\nsecond: {found['second']}\n"
    notes = [f"note: {note}" for note in found["notes"]]
    return "\n".join([head, *aligned(rows), "", "* the interval leaves out no change", *notes])


def _check_same_set(a: Report, b: Report) -> None:
    sets = [report.configuration.get("dataset") for report in (a, b)]
    digests = [found.get("sha256") if isinstance(found, Mapping) else found for found in sets]
    if digests[0] != digests[1]:
        raise ConfigError(
            "the reports are of different sets of questions", hint="run both on the same file"
        )


def _qa_rows(first: Path, second: Path, seed: int) -> tuple[list[dict[str, Any]], list[str]]:
    a, b = _records(first), _records(second)
    rows = []
    for mode in dict.fromkeys(mode for mode, _ in a):
        common = [key for key in a if key[0] == mode and key in b]
        if not common:
            continue
        for measure in a[common[0]]:
            left = [a[key].get(measure) for key in common]
            right = [b[key].get(measure) for key in common]
            found = paired_difference(left, right, seed)
            if found.difference is None:
                continue
            pairs = [
                (x, y) for x, y in zip(left, right, strict=True) if x is not None and y is not None
            ]
            rows.append(
                {
                    "group": mode,
                    "measure": measure,
                    "a": _mean(x for x, _ in pairs),
                    "b": _mean(y for _, y in pairs),
                    "difference": found.difference,
                    "low": found.low,
                    "high": found.high,
                    "num_items": found.num_items,
                    "significant": found.significant,
                }
            )
    alone = len(set(a) ^ set(b))
    return rows, [f"{alone} answers are in one run only and were left out"] if alone else []


def _records(run: Path) -> dict[tuple[str, str], dict[str, float | None]]:
    path = (run if run.is_dir() else run.parent) / _ITEMS_NAME
    found = {}
    try:
        for line in path.read_text(encoding="utf-8").split("\n"):
            if line:
                row = json.loads(line)
                extra = {
                    name: value for part in _EXTRA for name, value in row.get(part, {}).items()
                }
                found[row["mode"], row["id"]] = {**row["scores"], **extra}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"cannot read the answers {str(path)!r}: {error}",
            hint="compare folders that `specrag eval qa` wrote",
        ) from error
    return found


def _speed_rows(a: Report, b: Report, seed: int) -> tuple[list[dict[str, Any]], list[str]]:
    left, right = _arms(a), _arms(b)
    rows = []
    for key in left:
        if key not in right:
            continue
        common = [name for name in left[key] if name in right[key]]
        speeds = [[arm[key][name] for name in common] for arm in (left, right)]
        if not common:
            continue
        # A ratio of summed times per token is a ratio of tokens per second, weighed by prompt.
        spent = [[1 / speed for speed in found] for found in speeds]
        ratio = ratio_interval(spent[0], spent[1], seed)
        low, high = ratio.low or 0.0, ratio.high or 0.0
        rows.append(
            {
                "group": " ".join(key),
                "measure": "tokens_per_second",
                "a": len(common) / sum(spent[0]),
                "b": len(common) / sum(spent[1]),
                "difference": ratio.value,
                "low": low,
                "high": high,
                "num_items": len(common),
                "significant": not low <= 1 <= high,
            }
        )
    alone = len(set(left) ^ set(right))
    return rows, [f"{alone} arms are in one report only and were left out"] if alone else []


def _arms(report: Report) -> dict[tuple[str, str], dict[str, float]]:
    return {
        (row["category"], row["drafter"]): {
            prompt["id"]: prompt["tokens_per_second"]
            for prompt in row.get("prompts", ())
            if prompt["tokens_per_second"]
        }
        for row in report.figures["results"]
    }


def _differing(a: Report, b: Report) -> list[str]:
    """Says what besides the figures is not the same: a reader must not take one for the other."""
    notes = []
    for name in ("commit", "machine", "versions"):
        if getattr(a, name) != getattr(b, name):
            notes.append(f"the {name} differs" if name != "versions" else "the versions differ")
    other = [
        name
        for name in sorted({*a.configuration, *b.configuration} - {"notes"})
        if a.configuration.get(name) != b.configuration.get(name)
    ]
    return notes + ([f"other settings: {', '.join(other)}"] if other else [])


def _mean(values: Iterable[float]) -> float:
    kept = list(values)
    return sum(kept) / len(kept)
