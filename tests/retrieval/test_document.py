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


@pytest.mark.parametrize("module", ["document", "loaders", "splitter", "store", "recipe", "layout"])
def test_modules_without_vectors_load_neither_faiss_nor_torch(module: str) -> None:
    code = (
        f"import sys, specrag.retrieval.{module}\n"
        "sys.exit(' '.join({'faiss', 'torch', 'transformers'} & sys.modules.keys()) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
