"""Tables for terminals: aligned, and gains that cannot be misread."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.evaluation.reports.terminal import aligned, interval_text, qa_table
from tests.evaluation.reports.samples import report


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(*[st.text("ab c", max_size=5)] * 3), min_size=1, max_size=5))
def test_columns_stand_under_each_other(rows: list[tuple[str, str, str]]) -> None:
    lines = aligned(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for line, row in zip(lines, rows, strict=True):
        assert (
            line == f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}".rstrip()
        )


def test_shares_are_per_cent() -> None:
    figure = {"value": 0.25, "low": 0.125, "high": 0.5}
    assert interval_text(figure) == "25.0 (12.5-50.0)"
    assert interval_text({"value": None, "low": None, "high": None}) == interval_text(None) == "-"


def test_a_gain_below_zero_is_not_misread() -> None:
    found = report("qa")
    gains = {name: {"value": -0.13, "low": -0.3, "high": 0.04} for name in ("gate",)}
    gate = {**found.figures["gate"], "gain_captured": gains}
    gate |= {"auroc": {"gate": {"wrong": None, "helps": 0.5}}, "helps": 0.3, "hurts": 0.02}
    text = qa_table(report("qa", figures={**found.figures, "gate": gate}))
    assert "-0.13 (-0.30 to +0.04)" in text
    assert "retrieval helps 30.0%, hurts 2.0% of the questions" in text
    assert "note: a first note" in text
