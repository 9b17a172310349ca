"""From records to figures: means and differences with intervals, and the time of a lookup."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from specrag.evaluation.metrics.intervals import interval, paired_difference, percentiles
from specrag.evaluation.retrieval.records import Record


def summarise(records: Sequence[Record], names: Sequence[str], seed: int = 0) -> dict[str, Any]:
    """Returns the figures of a run, as plain data.

    Args:
        records: Of all questions and retrievers, the questions of each in the same order.
        names: Of the retrievers, in the order to report them.
        seed: Of the intervals.
    """
    by_name = {name: [row for row in records if row["mode"] == name] for name in names}
    return {
        "retrievers": {
            name: {
                measure: interval(_scores(rows, measure), seed).to_dict()
                for measure in rows[0]["scores"]
            }
            for name, rows in by_name.items()
        },
        "differences": [
            _difference(first, second, measure, by_name[first], by_name[second], seed)
            for first, second in combinations(names, 2)
            for measure in by_name[first][0]["scores"]
        ],
        "latency_ms": {
            name: percentiles([row["latency_ms"]["lookup_ms"] for row in rows])
            for name, rows in by_name.items()
        },
    }


def _difference(
    first: str,
    second: str,
    measure: str,
    before: Sequence[Record],
    after: Sequence[Record],
    seed: int,
) -> dict[str, Any]:
    found = paired_difference(_scores(before, measure), _scores(after, measure), seed)
    ends = {name: getattr(found, name) for name in ("difference", "low", "high")}
    return {
        "first": first,
        "second": second,
        "measure": measure,
        **{name: None if end is None else round(end, 6) for name, end in ends.items()},
        "num_items": found.num_items,
        "significant": found.significant,
    }


def _scores(rows: Sequence[Record], measure: str) -> list[float | None]:
    return [row["scores"][measure] for row in rows]
