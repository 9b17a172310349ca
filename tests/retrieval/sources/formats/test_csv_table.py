from __future__ import annotations

import pytest

from specrag.retrieval.sources.formats import csv_table
from specrag.retrieval.sources.source import ReadOptions, UnreadableError
from specrag.retrieval.splitter import Splitter
from tests.retrieval.sources.samples import read, read_one

TABLE = 'name,year,ok\n"Lee, Ann",2020,true\nBo,,false\n\nCy,2022,true\n'


def test_a_table_is_one_document_with_a_block_a_row() -> None:
    document = read_one(TABLE, "a.csv")
    assert document.text == (
        "name: Lee, Ann\nyear: 2020\nok: true\n\nname: Bo\nok: false\n\n"
        "name: Cy\nyear: 2022\nok: true"
    )
    assert (document.syntax, document.metadata) == ("rows", {"suffix": ".csv"})
    passages = Splitter(13, 0, lambda texts: [len(text.split()) for text in texts]).split(document)
    assert [passage.text[:8] for passage in passages] == ["name: Le", "name: Cy"]
    assert {passage.line for passage in passages} == {None}


def test_each_row_may_be_a_document() -> None:
    options = ReadOptions(text_column="text", id_column="key", title_column="head")
    table = "key,head,text,year,n\nk1,Top,Some text,2020,1\nk2,,More. 007,2021,x\nk3,Gone,,2022,2\n"
    one, two = read(table, "a.csv", options)
    assert (one.id, one.title, one.text, one.syntax) == ("a.csv#k1", "Top", "Some text", "plain")
    assert one.metadata == {"year": 2020, "n": "1", "row": 1, "suffix": ".csv"}
    assert (two.id, two.title, two.text) == ("a.csv#k2", None, "More. 007")
    passages = Splitter(9, 0, lambda texts: [len(text.split()) for text in texts]).split(two)
    assert [passage.line for passage in passages] == [None]
    counted = read(table, "a.csv", ReadOptions(text_column="head"))
    assert [document.id for document in counted] == ["a.csv#1", "a.csv#3"]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_header_tells_the_separator(separator: str) -> None:
    table = f"a{separator}b c\n1{separator}2,5\n".replace("2,5", "2" if separator == "," else "2,5")
    assert read_one(table, "a.csv").text.startswith("a: 1\nb c: 2")
    assert read_one("a\tb,c\n1\t2,3\n", "a.tsv").text == "a: 1\nb,c: 2,3"


def test_ragged_and_odd_rows_lose_nothing() -> None:
    document = read_one("a,,a\n1\n2,3,4,5\n", "a.csv")
    assert document.text == "a: 1\n\na: 2\ncolumn 2: 3\na 2: 4\ncolumn 4: 5"


def test_cells_may_hold_lines_and_be_long() -> None:
    document = read_one(f'a,b\n"x\n\n  y",{"z" * 200_000}\n', "a.csv")
    assert document.text == f"a: x\ny\nb: {'z' * 200_000}"


@pytest.mark.parametrize(
    ("table", "options", "reason"),
    [
        ("a,b\n1,2\n", ReadOptions(text_column="c"), "has no column 'c'; allowed: a, b"),
        ("text,b\n1,2\n", ReadOptions(text_column="txt"), "did you mean 'text'"),
        (
            "a,b\n1,2\n1,3\n",
            ReadOptions(text_column="b", id_column="a"),
            "the row that ends on line 3 has the id '1' of the row that ends on line 2",
        ),
        (
            "a,b\n,2\n",
            ReadOptions(text_column="b", id_column="a"),
            "the row that ends on line 2 has no value for 'a'",
        ),
        ("a,b\n", ReadOptions(), "holds no text"),
        ("", ReadOptions(), "holds no text"),
    ],
)
def test_unusable_tables_are_refused(table: str, options: ReadOptions, reason: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        read(table, "a.csv", options)
    assert reason in caught.value.reason


def test_columns_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_table, "_MAX_COLUMNS", 2)
    with pytest.raises(UnreadableError, match=r"has 3 columns \(at most 2\)"):
        read("a,b\n1,2,3\n", "a.csv")
