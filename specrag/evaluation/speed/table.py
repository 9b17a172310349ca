"""The figures of a run as text of at most 100 columns."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from specrag.evaluation.reports.terminal import aligned
from specrag.evaluation.speed.figures import ALL

Row = Mapping[str, Any]

_HEAD = ("", "tau", "tok/s (95 %)", "speedup (95 %)", "+prefill", "ms P50/90/99", "equal")


def speed_table(figures: Mapping[str, Any], machine: Mapping[str, Any]) -> str:
    """Returns the figures for people to read.

    Args:
        figures: Of ``speed_figures``.
        machine: That they were measured on.
    """
    rows: Sequence[Row] = figures["results"]
    categories = list(dict.fromkeys(row["category"] for row in rows))
    if len(categories) == 2:
        categories.remove(ALL)  # the same prompts once more
    table = [(row["category"], _cells(row)) for row in rows if row["category"] in categories]
    head, *body = aligned([_HEAD, *(cells for _, cells in table)])
    lines = [
        f"{machine['processor']}, {machine['threads']} threads, {machine['cpu_capability']}, "
        f"torch {machine['torch']}",
        f"  {head}",
    ]
    for category in categories:
        count = max(row["num_prompts"] for row in rows if row["category"] == category)
        lines.append(f"{category} ({count} prompt{'s' * (count != 1)})")
        of_category = zip(table, body, strict=True)
        lines += [f"  {line}" for (label, _), line in of_category if label == category]
    overall = [row for row in rows if row["category"] == ALL]
    return "\n".join([*lines, *_memory(overall), *_differences(overall), *_tasks(figures)])


def _cells(row: Row) -> tuple[str, ...]:
    times = row["ms_per_token"]
    return (
        row["drafter"],
        _short(row["mean_acceptance_length"]),
        _ranged(row, "tokens_per_second"),
        _ranged(row, "speedup", "x"),
        _short(row["speedup_with_prefill"], "x"),
        "/".join(_short(times[name]) for name in ("p50", "p90", "p99")),
        f"{row['num_equal_to_plain']}/{row['num_prompts']}",
    )


def _ranged(row: Row, name: str, unit: str = "") -> str:
    text, low, high = _short(row[name], unit), row[f"{name}_low"], row[f"{name}_high"]
    if low is None or low == high:
        return text
    return f"{text} ({_short(low)}-{_short(high)})"


def _short(value: float | None, unit: str = "") -> str:
    """Returns about three digits, or a dash for what is not known."""
    if value is None:
        return "-"
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}{unit}"


def _memory(rows: Sequence[Row]) -> list[str]:
    """Arms of one process share its peak."""
    told: dict[float, list[str]] = {}
    for row in rows:
        if row["peak_memory_mb"] is not None:
            told.setdefault(row["peak_memory_mb"], []).append(row["drafter"])
    return [f"peak memory {peak:.0f} MiB: {', '.join(arms)}" for peak, arms in told.items()]


def _differences(rows: Sequence[Row]) -> list[str]:
    lines = []
    for row in rows:
        found = row["first_differences"]
        if not found:
            continue
        margins = [item["margin"] for item in found if item["margin"] is not None]
        middle = f"{statistics.median(margins):.4f}" if margins else "unknown"
        widest = f", at most {max(margins):.4f}" if margins else ""
        differ = "1 answer differs" if len(found) == 1 else f"{len(found)} answers differ"
        lines.append(
            f"{row['drafter']}: {differ} from plain decoding; top-2 margin where they first do: "
            f"median {middle}{widest}"
        )
    return lines


def _tasks(figures: Mapping[str, Any]) -> list[str]:
    return [
        f"{row['task']}: {row['drafter']} has {row['acceptance']:.0%} of {row['num_drafts']} "
        f"drafts accepted at the first token (usual {row['usual_low']:.0%} to "
        f"{row['usual_high']:.0%})"
        for row in figures["tasks"]
    ]
