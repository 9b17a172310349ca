"""Tables of reports whose figures are partly unknown, with the sizes of their samples."""

from __future__ import annotations

import pytest

from specrag.evaluation.reports.report import KINDS, Kind
from specrag.evaluation.reports.tables import Table, origin, tables_of
from tests.evaluation.plots.layouts import LAYOUTS
from tests.evaluation.reports.samples import report


def _named(tables: list[Table], start: str) -> Table:
    return next(table for table in tables if table.caption.startswith(start))


@pytest.mark.parametrize("kind", KINDS)
def test_tables_are_rectangular(kind: Kind) -> None:
    for table in tables_of(report(kind)):
        assert {len(row) for row in table.rows} == {len(table.head)}


def test_an_engine_without_times_of_passes_has_its_row() -> None:
    figures = LAYOUTS["speed"]()
    for row in figures["results"]:
        if row["drafter"] == "llama.cpp":
            row["ms_per_token"] = {"mean": 9.0, "p50": None, "p90": None, "p99": None}
            row["speedup"] = row["tokens_per_second"] = None
    rows = _named(tables_of(report("speed", figures=figures)), "Speed").rows
    peer = next(row for row in rows if row[1] == "llama.cpp")
    assert "9.0, -, -, -" in peer


def test_counts_stand_in_the_order_of_modes() -> None:
    figures = LAYOUTS["qa"]()
    figures["modes"]["auto"]["retrieval_recall"]["num_items"] = 3
    tables = tables_of(report("qa", figures=figures))
    rows = {row[0]: row[-1] for row in _named(tables, "Answers").rows}
    assert rows["retrieval recall"] == "0/25/3"
    assert rows["contains"] == "40"
    for caption in ("Per question", "Milliseconds"):
        assert _named(tables, caption).rows[-1] == ("n", "40", "40", "40")
    assert "of 40 questions" in _named(tables, "Gates").caption


def test_what_differs_or_fails_is_told() -> None:
    figures = LAYOUTS["speed"]()
    figures["results"][-1]["first_differences"] = [
        {"id": "a", "position": 3, "margin": 0.25},
        {"id": "b", "position": 1, "margin": None},
    ]
    figures["failed"] = [{"arm": "x", "prompt_id": "p", "message": "gone"}]
    figures["left_out"] = ["long"]
    tables = tables_of(report("speed", figures=figures))
    assert _named(tables, "Answers that differ").rows == (
        ("llama.cpp", "2 of 20", "0.2500", "0.2500"),
    )
    assert _named(tables, "What failed").rows == (("x", "p", "gone"),)
    assert _named(tables, "Left out").rows == (("long",),)


def test_all_settings_are_told_however_deep() -> None:
    told = {
        "dataset": {"name": "xquad", "sha256": "ab"},
        "settings": {"modes": ["never", "auto"], "k": None},
        "datasets": [{"name": "one"}, {"name": "two"}],
        "notes": ["not here"],
    }
    rows = {row[0]: row[1] for row in origin(report("qa", configuration=told)).rows}
    wanted = {
        "dataset name": "xquad",
        "dataset sha256": "ab",
        "settings modes": "never, auto",
        "datasets 2 name": "two",
    }
    assert wanted.items() <= rows.items()
    assert not [name for name in rows if "notes" in name or name == "settings k"]


def test_what_won_has_a_table_of_its_own() -> None:
    made = tables_of(report("tuning"))
    assert _named(made, "Final").rows == _named(made, "All that was tried").rows[:2]


def test_each_pair_of_retrievers_has_its_column() -> None:
    made = tables_of(report("retrieval"))
    changes = _named(made, "Differences")
    assert changes.head == (
        "measure", "bm25 less dense", "hybrid less dense", "hybrid less bm25"
    )  # fmt: skip
    assert changes.rows[0] == ("ndcg@10", *["+10.0 (+5.0 to +15.0)*"] * 3)
    found = _named(made, "Documents found")
    assert found.rows[2] == (
        "recall@1", "50.0 (40.0-60.0)", "52.0 (42.0-62.0)", "54.0 (44.0-64.0)", "40"
    )  # fmt: skip
    assert _named(made, "What was searched").rows[1] == ("passages", "2000")
    alone = LAYOUTS["retrieval"]() | {"differences": []}
    captions = [table.caption for table in tables_of(report("retrieval", figures=alone))]
    assert not any(caption.startswith("Differences") for caption in captions)
