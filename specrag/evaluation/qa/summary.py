"""From records to figures: means with intervals, by mode and category, and where the time went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specrag.evaluation.metrics.intervals import interval, percentiles
from specrag.evaluation.qa.records import Record

_USAGE = ("lookups", "context_tokens", "prompt_tokens", "completion_tokens", "draft_tokens")


def summarise(records: Sequence[Record], modes: Sequence[str], seed: int = 0) -> dict[str, Any]:
    """Returns the figures of a run, as plain data.

    Args:
        records: Of all questions and modes.
        modes: Those to report, in this order.
        seed: Of the intervals.
    """
    by_mode = {mode: [row for row in records if row["mode"] == mode] for mode in modes}
    categories = sorted({row["category"] for row in records if row["category"]})
    return {
        "modes": {mode: _scores(rows, seed) for mode, rows in by_mode.items()},
        "categories": {
            category: {
                mode: _scores([row for row in rows if row["category"] == category], seed)
                for mode, rows in by_mode.items()
            }
            for category in categories
        },
        "usage": {mode: _usage(rows) for mode, rows in by_mode.items()},
        "latency_ms": {mode: _latency(rows) for mode, rows in by_mode.items()},
        "tokens_per_second": {mode: _speed(rows) for mode, rows in by_mode.items()},
        "mean_acceptance_length": {mode: _acceptance(rows) for mode, rows in by_mode.items()},
    }


def _scores(rows: Sequence[Record], seed: int) -> dict[str, Any]:
    names = list(rows[0]["scores"]) if rows else []
    found = {name: interval([row["scores"][name] for row in rows], seed) for name in names}
    return {name: figure.to_dict() for name, figure in found.items()}


def _usage(rows: Sequence[Record]) -> dict[str, float]:
    return {
        name: round(sum(row["usage"][name] for row in rows) / len(rows), 4) for name in _USAGE
    } | {"cut_off": round(sum(row["finish_reason"] == "length" for row in rows) / len(rows), 4)}


def _latency(rows: Sequence[Record]) -> dict[str, Any]:
    stages = list(rows[0]["latency_ms"])
    return {stage: percentiles([row["latency_ms"][stage] for row in rows]) for stage in stages}


def _speed(rows: Sequence[Record]) -> float | None:
    later = sum(row["usage"]["completion_tokens"] - 1 for row in rows)
    spent = sum(row["latency_ms"]["decode_ms"] for row in rows)
    return round(1e3 * later / spent, 3) if spent else None


def _acceptance(rows: Sequence[Record]) -> float:
    passes = sum(row["speculation"]["num_passes"] for row in rows)
    accepted = sum(row["speculation"]["num_accepted_tokens"] for row in rows)
    return round((passes + accepted) / passes, 4) if passes else 1.0
