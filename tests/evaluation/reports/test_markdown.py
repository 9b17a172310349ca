"""Tables that are tables, names that are only letters, and pictures as links."""

from __future__ import annotations

import re

import pytest

from specrag.evaluation.reports.markdown import to_markdown
from specrag.evaluation.reports.report import KINDS, Kind
from tests.evaluation.reports.samples import hostile_report, report

_CELL = re.compile(r"(?<!\\)\|")


def _tables(text: str) -> list[list[int]]:
    """Returns the number of cells of each row of each table."""
    blocks = [block.splitlines() for block in text.split("\n\n")]
    return [[len(_CELL.split(line)) for line in block] for block in blocks if block[0][0] == "|"]


@pytest.mark.parametrize("kind", KINDS)
def test_all_rows_of_a_table_have_as_many_cells(kind: Kind) -> None:
    tables = _tables(to_markdown(report(kind)))
    assert len(tables) >= 3
    assert all(len(set(counts)) == 1 for counts in tables)
    assert all(len(counts) > 2 for counts in tables)  # a head, a rule and a row


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_run_stands_in_it(kind: Kind) -> None:
    text = to_markdown(report(kind, seed=17))
    assert text.startswith(f"# A small {kind} report\n")
    for told in (f"specrag measure {kind}", "0" * 40, "a first note", "| seed | 17 |", "torch"):
        assert told in text
    assert "| model | tiny |" in text


def test_figures_have_intervals_and_sample_sizes() -> None:
    assert "| contains | 20.0 (10.0-30.0) | 50.0 (40.0-60.0) | 45.0 (35.0-55.0) | 40 |" in (
        to_markdown(report("qa"))
    )
    lines = to_markdown(report("speed")).splitlines()
    row = next(line for line in lines if line.startswith("| coding | suffix |"))
    assert "| 10 |" in row  # prompts
    assert "60.0 (57.0-64.5)" in row


def test_pictures_are_links_with_their_captions() -> None:
    text = to_markdown(report("tuning"), ["gamma_sweep"], "a second note")
    assert re.search(r"!\[Speed over .*\]\(plots/gamma_sweep\.png\)", text)
    assert "- a second note" in text
    assert "](" not in to_markdown(report("tuning"))


def test_hostile_names_start_nothing() -> None:
    text = to_markdown(hostile_report(), ["speed_by_drafter"])
    assert "<" not in text
    assert all(len(set(counts)) == 1 for counts in _tables(text))
    assert re.findall(r"(?<!\\)!?\[[^\]]*\]\(([^)]*)\)", text) == ["plots/speed_by_drafter.png"]
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1
    assert re.findall(r"(?<!\\)[`*]", text) == []
