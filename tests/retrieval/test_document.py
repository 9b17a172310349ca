from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from specrag.errors import InputError
from specrag.retrieval.document import Document, Passage, ScoredPassage


def test_a_document_without_an_id_is_refused() -> None:
    with pytest.raises(InputError, match="needs an id, got ''.*notes.txt"):
        Document("", "text", "notes.txt")


@pytest.mark.parametrize(("start", "end"), [(0, 3), (0, 5), (-1, 3), (4, 0)])
def test_a_passage_whose_offsets_do_not_fit_its_text_is_refused(start: int, end: int) -> None:
    with pytest.raises(InputError, match=r"has 4 characters"):
        Passage(0, "a", "text", start, end)


def test_a_negative_passage_id_is_refused() -> None:
    with pytest.raises(InputError, match="at least 0, got -1"):
        Passage(-1, "a", "text", 0, 4)


@pytest.mark.parametrize(
    "value",
    [
        Document("a", "text", "a"),
        Passage(0, "a", "text", 0, 4),
        ScoredPassage(Passage(0, "a", "text", 0, 4), 0.5),
    ],
)
def test_values_cannot_be_changed(value: Document | Passage | ScoredPassage) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, dataclasses.fields(value)[0].name, "other")


@pytest.mark.parametrize(
    "module", ["document", "sources.catalog", "splitter", "store", "recipe", "layout", "filters"]
)
def test_modules_without_vectors_load_neither_faiss_nor_torch(module: str) -> None:
    code = (
        f"import sys, specrag.retrieval.{module}\n"
        "sys.exit(' '.join({'faiss', 'torch', 'transformers'} & sys.modules.keys()) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**63, -(2**63) - 1])
def test_metadata_that_a_filter_cannot_compare_is_refused(value: float) -> None:
    with pytest.raises(InputError, match="the metadata 'year' of 'a' must be a finite number"):
        Document("a", "text", "a", metadata={"year": value})


def test_pages_are_found_by_offset() -> None:
    document = Document("a", "0123456789", "a", page_starts=(0, 4, 4, 9))
    assert [document.page_at(offset) for offset in (0, 3, 4, 8, 9)] == [1, 1, 3, 3, 4]
    assert Document("a", "0", "a").page_at(0) is None
    assert (document.markup, Document("a", "", "x.md").markup) == ("plain", "markdown")
    assert Document("a", "", "x.pdf", syntax="rst").markup == "rst"
