"""The figures of vector indexes as text of at most 100 columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specrag.evaluation.reports.terminal import aligned

_HEAD = (
    "vectors", "index", "build s", "disk MB", "RAM MB",
    "ms P50/P95", "CPU ms", "recall", "add ms", "del ms",
)  # fmt: skip
_MIB_IN_MB = 1.048576


def vector_table(report: Mapping[str, Any]) -> str:
    """Returns the figures for people to read.

    Args:
        report: Of ``run_vector_benchmark``.
    """
    settings, machine = report["settings"], report["machine"]
    rows = [_HEAD, *(_cells(row) for row in report["results"])]
    return "\n".join(
        [
            f"{machine['processor']}; {settings['dimension']} dimensions, k={settings['k']}, "
            f"{settings['num_queries']} queries one by one on one thread",
            *aligned(rows),
            "RAM: what an index that is read, not mapped, adds to a process, without files that",
            "the system may drop. CPU: P50 of the processor's own time, which other work on the",
            "machine hardly changes. add, del: P50 of one, as an index of segments does it.",
        ]
    )


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    read, mapped = row["read"], row["mapped"]
    times = mapped["one_thread_ms"]
    return (
        f"{row['num_vectors']:,}",
        row["factory"].removeprefix("IDMap2,"),
        _short(row["build_seconds"]),
        _short(row["disk_bytes"] / 1e6),
        _short(read["anonymous_mib"] * _MIB_IN_MB),
        f"{_short(times['p50'])}/{_short(times['p95'])}",
        _short(mapped["one_thread_cpu_ms"]["p50"]),
        f"{mapped['recall']:.3f}",
        _short(mapped["add_ms"]["p50"]),
        _short(mapped["delete_ms"]["p50"]),
    )


def _short(value: float) -> str:
    """Returns about three digits."""
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"
