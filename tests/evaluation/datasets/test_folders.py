"""Folders: packed files, judgements that name what is there, and lines in every error."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from specrag.errors import InputError
from specrag.evaluation.datasets.catalog import load_dataset
from tests.evaluation.datasets.samples import write_beir, write_cranfield


def rewrite(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_packed_folders_are_read_alike(tmp_path: Path) -> None:
    plain, packed = write_beir(tmp_path / "a"), write_beir(tmp_path / "b")
    for path in [path for path in packed.rglob("*") if path.is_file()]:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    one, two = load_dataset(str(plain)), load_dataset(str(packed))
    assert one.items == two.items
    assert [each.text for each in one.documents] == [each.text for each in two.documents]


def test_judgements_are_counted_once_and_only_where_the_document_has_a_text(
    tmp_path: Path,
) -> None:
    beir = write_beir(tmp_path / "beir")
    with (beir / "qrels" / "test.tsv").open("a") as file:
        file.write("q1\td1\t2\nq1\tmissing\t1\n")
    judged = load_dataset(str(beir)).items[0]
    assert (judged.documents, judged.grades) == (("d1",), {"d1": 2.0})  # the better of two
    cran = write_cranfield(tmp_path / "cran")
    rewrite(cran / "cran.all.1400", "The heat is high.\n", "")
    found = load_dataset(str(cran))
    assert [document.id for document in found.documents] == ["1"]
    assert [item.documents for item in found.items] == [("1",), ("1",)]


@pytest.mark.parametrize(
    ("code", "grades"),
    [
        ("1", {"1": 2.0, "2": 4.0}),  # a complete answer
        ("-1", {"1": 2.0, "2": 4.0}),  # what the query was written about
        ("4", {"1": 2.0, "2": 1.0}),
        ("", {"1": 2.0, "2": 1.0}),
        ("5", {"1": 2.0}),  # of no interest
    ],
)
def test_the_codes_of_cranfield_become_grades_that_rise(
    tmp_path: Path, code: str, grades: dict[str, float]
) -> None:
    source = write_cranfield(tmp_path / "set")
    rewrite(source / "cranqrel", "2 2 1", f"2 2 {code}")
    asked = load_dataset(str(source)).items[1]
    assert asked.grades == grades
    assert set(asked.documents) == set(grades)


def test_a_document_of_a_title_alone_is_that_title(tmp_path: Path) -> None:
    beir = write_beir(tmp_path / "beir")
    rewrite(beir / "corpus.jsonl", "The smith is old.", "")
    assert [document.text for document in load_dataset(str(beir)).documents][1] == "Smith"


@pytest.mark.parametrize(
    ("name", "old", "new", "match"),
    [
        ("corpus.jsonl", '"text": "The smith', '"txt": "The smith', "line 2 .*'text' is missing"),
        ("corpus.jsonl", '"d2"', '"d1"', "two documents with the id 'd1'"),
        ("queries.jsonl", '"q1"', '" "', "line 1 .*_id is blank"),
        ("queries.jsonl", "When was the mill built?", " ", "line 1 .*queries.*blank"),
        ("qrels/test.tsv", "d2\t0", "d2\tno", "line 3 .*score is no number"),
        ("qrels/test.tsv", "corpus-id", "corpus", "line 2 .*'corpus-id' is missing"),
    ],
)
def test_damage_of_a_beir_folder_names_file_and_line(
    tmp_path: Path, name: str, old: str, new: str, match: str
) -> None:
    source = write_beir(tmp_path / "set")
    rewrite(source / name, old, new)
    with pytest.raises(InputError, match=match) as caught:
        load_dataset(str(source))
    assert str(source) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "old", "new", "match"),
    [
        ("cranqrel", "2 2 1", "two 2 1", "line 2 .*no judgement of one of 2 queries"),
        ("cranqrel", "2 2 1", "3 2 1", "line 2 .*no judgement of one of 2 queries"),
        ("cranqrel", "2 2 1", "2 2 6", "line 2 .*no judgement of one of 2 queries"),
        ("cranqrel", "2 2 1", "2", "line 2 .*no judgement of one of 2 queries"),
        ("cran.qry", ".I 004", ".I 001", "line 5 .*cran.qry.*'001' is there already"),
        ("cran.qry", ".I 004", ".I", "line 5 .*cran.qry.*without a number"),
        ("cran.qry", ".W\nheat", ".W\n", "line 5 .*cran.qry.*blank"),
    ],
)
def test_damage_of_a_cranfield_folder_names_file_and_line(
    tmp_path: Path, name: str, old: str, new: str, match: str
) -> None:
    source = write_cranfield(tmp_path / "set")
    rewrite(source / name, old, new)
    with pytest.raises(InputError, match=match):
        load_dataset(str(source))


@pytest.mark.slow
@pytest.mark.skipif("SPECRAG_DATA" not in os.environ, reason="SPECRAG_DATA names no data")
def test_all_judgements_of_cranfield_but_the_one_of_an_empty_document_are_read() -> None:
    found = load_dataset(str(Path(os.environ["SPECRAG_DATA"]) / "cranfield"))
    grades = [grade for item in found.items for grade in item.grades.values()]
    assert len(grades) == sum(len(item.documents) for item in found.items) == 1837 - 1
    counts = {grade: grades.count(grade) for grade in sorted(set(grades))}
    assert counts == {1.0: 363, 2.0: 733, 3.0: 387, 4.0: 353}
