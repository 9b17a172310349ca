"""Two reports of the same questions held against each other, pair by pair, with intervals."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specrag.errors import ConfigError, InputError
from specrag.evaluation.metrics.intervals import FEWEST, Array, paired_difference
from specrag.evaluation.reports.report import Report, load_report
from specrag.evaluation.reports.terminal import aligned
from specrag.evaluation.speed.ratios import interval

_KINDS = ("qa", "speed", "retrieval")
_ITEMS_NAME = "items.jsonl"
_PARTS = ("scores", "usage", "latency_ms")
_HEAD = ("group", "measure", "first", "second")
_Row = dict[str, Any]
_Key = tuple[str, str]


def compare(first: Path, second: Path, seed: int = 0) -> dict[str, Any]:
    """Returns how much the second report differs from the first, as plain data.

    Question-answering and retrieval runs are compared by mode over the questions that both have,
    as the mean difference; speed reports by category and arm over the prompts that both have, as
    the ratio of tokens per second over these prompts. Intervals are paired: a question that is
    drawn anew brings both its figures.

    Args:
        first: A report, or the folder of a run.
        second: Another of the same kind and the same questions.
        seed: Of the intervals.

    Raises:
        InputError: One cannot be read.
        ConfigError: They are of different kinds or sets, or have nothing in common.
    """
    a, b = load_report(first), load_report(second)
    if a.kind != b.kind:
        raise ConfigError(
            f"a report of kind {a.kind!r} and one of kind {b.kind!r} cannot be compared",
            hint="give two of the same command",
        )
    if a.kind not in _KINDS:
        raise ConfigError(
            f"reports of kind {a.kind!r} cannot be compared", hint=f"allowed: {', '.join(_KINDS)}"
        )
    _check_same_sets(a, b)
    if a.kind != "speed":
        rows, notes = _qa_rows(_records(first), _records(second), seed)
    else:
        rows, notes = _speed_rows(_arms(a, first), _arms(b, second), seed)
    if not rows:
        raise ConfigError(
            f"{str(first)!r} and {str(second)!r} have no figure of the same question in common",
            hint="run both with the same sample, seed and modes or drafters",
        )
    return {
        "kind": a.kind,
        "first": str(first),
        "second": str(second),
        "rows": rows,
        "notes": notes + _differing(a, b),
    }


def render_comparison(found: Mapping[str, Any], *, markdown: bool = False) -> str:
    """Returns a comparison as a text table.

    Args:
        found: As ``compare`` returns it.
        markdown: Whether as Markdown, instead of for a terminal.
    """
    what = "ratio" if found["kind"] == "speed" else "difference"
    rows = [[*_HEAD, f"{what} (95 %)", "items", ""], *map(_cells, found["rows"])]
    notes = ["* the interval leaves out no change", *(f"note: {note}" for note in found["notes"])]
    runs = [f"first: {found['first']}", f"second: {found['second']}"]
    if not markdown:
        return "\n".join([*runs, "", *aligned(rows), "", *notes])
    lines = [rows[0], ["---" for _ in rows[0]], *rows[1:]]
    table = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in lines]
    return "\n".join([*(f"- {run}" for run in runs), "", *table, "", *(f"- {n}" for n in notes)])


def _cells(row: Mapping[str, Any]) -> list[str]:
    sign = "" if row["measure"] == "tokens_per_second" else "+"
    change = _number(row["difference"], sign)
    if row["low"] is not None:
        change += f" ({_number(row['low'], sign)} to {_number(row['high'], sign)})"
    return [
        row["group"],
        row["measure"],
        _number(row["a"]),
        _number(row["b"]),
        change,
        str(row["num_items"]),
        "*" if row["significant"] else "",
    ]


def _number(value: float, sign: str = "") -> str:
    return f"{value:{sign}.{3 if abs(value) < 10 else 1}f}"


def _check_same_sets(a: Report, b: Report) -> None:
    if _digests(a) != _digests(b):
        raise ConfigError(
            f"the reports are of different sets of questions: {_sets(a)} and {_sets(b)}",
            hint="run both on the same files",
        )


def _digests(report: Report) -> list[str]:
    return sorted(found.get("sha256", "") for found in _datasets(report))


def _sets(report: Report) -> str:
    named = [f"{found.get('name')} ({found.get('sha256', '')[:8]})" for found in _datasets(report)]
    return ", ".join(named) or "none"


def _datasets(report: Report) -> list[Mapping[str, Any]]:
    """Returns the sets of a report: question answering has one, the speed of decoding several."""
    told = report.configuration
    return [told["dataset"]] if "dataset" in told else list(told.get("datasets", ()))


def _qa_rows(
    a: Mapping[_Key, _Row], b: Mapping[_Key, _Row], seed: int
) -> tuple[list[_Row], list[str]]:
    rows = []
    for mode in dict.fromkeys(mode for mode, _ in a):
        common = [key for key in a if key[0] == mode and key in b]
        for measure in dict.fromkeys(name for key in common for name in (*a[key], *b[key])):
            pairs = [(a[key].get(measure), b[key].get(measure)) for key in common]
            told = [(x, y) for x, y in pairs if x is not None and y is not None]
            if told:
                rows.append(_difference(mode, measure, told, seed))
    return rows, _alone("answers", a, b)


def _difference(mode: str, measure: str, pairs: Sequence[tuple[float, float]], seed: int) -> _Row:
    left, right = zip(*pairs, strict=True)
    found = paired_difference(left, right, seed)
    return {
        "group": mode,
        "measure": measure,
        "a": statistics.fmean(left),
        "b": statistics.fmean(right),
        "difference": found.difference,
        "low": found.low,
        "high": found.high,
        "num_items": found.num_items,
        "significant": found.significant,
    }


def _records(run: Path) -> dict[_Key, _Row]:
    path = (run if run.is_dir() else run.parent) / _ITEMS_NAME
    found = {}
    try:
        for line in path.read_text(encoding="utf-8").split("\n"):
            if line.strip():
                row = json.loads(line)
                # All but the scores may be missing: other tools write items, too.
                parts = [row["scores"], *(row.get(part) or {} for part in _PARTS[1:])]
                found[row["mode"], row["id"]] = {
                    name: float(value)
                    for part in parts
                    for name, value in part.items()
                    if isinstance(value, int | float)
                }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"cannot read the answers {str(path)!r}: {type(error).__name__}: {error}",
            hint="compare folders that `specrag eval` wrote",
        ) from error
    return found


def _speed_rows(
    a: Mapping[_Key, Mapping[str, _Row]], b: Mapping[_Key, Mapping[str, _Row]], seed: int
) -> tuple[list[_Row], list[str]]:
    rows = []
    for key in a:
        both = [(a[key][name], b[key][name]) for name in a[key] if name in b.get(key, {})]
        if both:
            rows.append(_ratio(" ".join(key), both, seed))
    prompts = [{(*key, name): 1 for key in side for name in side[key]} for side in (a, b)]
    return rows, _alone("arms", a, b) or _alone("answers", *prompts)


def _ratio(group: str, pairs: Sequence[tuple[_Row, _Row]], seed: int) -> _Row:
    columns = [
        [pair[side][name] for pair in pairs]
        for side in (0, 1)
        for name in ("num_tokens", "decode_ms")
    ]
    left, right = (1e3 * sum(columns[at]) / sum(columns[at + 1]) for at in (0, 2))
    ends = interval(columns, _faster, seed)
    low, high = ends or (None, None)
    return {
        "group": group,
        "measure": "tokens_per_second",
        "a": left,
        "b": right,
        "difference": right / left,
        "low": low,
        "high": high,
        "num_items": len(pairs),
        "significant": ends is not None and len(pairs) >= FEWEST and not ends[0] <= 1 <= ends[1],
    }


def _faster(tokens: Array, times: Array, other_tokens: Array, other_times: Array) -> Array:
    return (other_tokens / other_times) / (tokens / times)


def _arms(report: Report, path: Path) -> dict[_Key, dict[str, _Row]]:
    """Returns tokens and times of each prompt, by category and arm."""
    try:
        return {
            (row["category"], row["drafter"]): {
                prompt["id"]: {
                    # Those that the time is about; the first token belongs to prefill.
                    "num_tokens": prompt["tokens_per_second"] * prompt["decode_ms"] / 1e3,
                    "decode_ms": prompt["decode_ms"],
                }
                for prompt in row.get("prompts", ())
                if prompt["tokens_per_second"]
            }
            for row in report.figures["results"]
        }
    except (KeyError, TypeError) as error:
        raise InputError(
            f"the speed report {str(path)!r} lacks figures: {type(error).__name__}: {error}",
            hint="measure again",
        ) from error


def _alone(what: str, a: Mapping[Any, Any], b: Mapping[Any, Any]) -> list[str]:
    counts = [len(one.keys() - other.keys()) for one, other in ((a, b), (b, a))]
    told = f"left out {what} of one run only: {counts[0]} of the first, {counts[1]} of the second"
    return [told] if any(counts) else []


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
