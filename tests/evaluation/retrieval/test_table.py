"""The text for a terminal: every measure, every pair, at most a hundred columns."""

from __future__ import annotations

from specrag.evaluation.retrieval.table import retrieval_table
from tests.evaluation.plots.layouts import retrieval
from tests.evaluation.reports.samples import report


def test_measures_times_and_differences_are_told() -> None:
    shown = retrieval_table(report("retrieval"))
    # Measures come up twice; the values stand first.
    lines = {line.split("  ")[0]: line for line in reversed(shown.split("\n"))}
    assert "50.0 (40.0-60.0)" in lines["recall@1"]
    assert "2000 passages" in shown
    assert "lookup_ms, p99" in lines
    assert "hybrid less bm25" in lines["difference in points"]
    assert "+10.0 (+5.0 to +15.0)*" in shown
    assert "note: a first note" in shown
    assert max(map(len, shown.split("\n"))) <= 100


def test_what_is_unknown_is_a_dash() -> None:
    figures = retrieval()
    figures["retrievers"]["bm25"] = {}
    for row in figures["differences"]:
        row.update(difference=None, low=None, high=None, significant=False)
    shown = retrieval_table(report("retrieval", figures=figures))
    row = next(line for line in shown.split("\n") if line.startswith("recall@1 "))
    assert row.split()[3] == "-"
