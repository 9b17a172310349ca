from __future__ import annotations

import contextlib
import random

import pytest

from specrag.retrieval.sources.formats import pdf
from specrag.retrieval.sources.source import UnreadableError
from specrag.retrieval.splitter import Splitter
from tests.retrieval.sources.samples import encrypted_pdf, pdf_of, read_one


def test_pages_are_joined_and_remembered() -> None:
    document = read_one(pdf_of(["First page.\nMore.", "", "Third page."], "Manual"), "a.pdf")
    assert document.text.split() == ["First", "page.", "More.", "Third", "page."]
    assert (document.title, document.syntax) == ("Manual", "plain")
    assert document.metadata == {"pages": 3, "suffix": ".pdf"}
    assert document.page_at(document.text.index("First")) == 1
    assert document.page_at(document.text.index("Third")) == 3
    passages = Splitter(4, 0, lambda texts: [len(text.split()) for text in texts]).split(document)
    assert [(passage.page, passage.line) for passage in passages] == [(1, None), (3, None)]


def test_a_passage_may_run_over_pages() -> None:
    document = read_one(pdf_of(["One.", "Two.", "Three."]), "a.pdf")
    (passage,) = Splitter(9, 0, lambda texts: [len(text.split()) for text in texts]).split(document)
    assert (passage.page, passage.text.split()) == (1, ["One.", "Two.", "Three."])


def test_an_empty_password_opens_a_protected_file() -> None:
    assert read_one(encrypted_pdf(""), "a.pdf").text == "Hidden."


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "MAX_PDF_PAGES", 2)
    assert read_one(pdf_of(["a", "b"]), "a.pdf")
    with pytest.raises(UnreadableError, match="has more than 2 pages; split it"):
        read_one(pdf_of(["a", "b", "c"]), "a.pdf")
    monkeypatch.setattr(pdf, "MAX_TEXT_CHARACTERS", 3)
    with pytest.raises(UnreadableError, match="holds more than 3 characters of text"):
        read_one(pdf_of(["ab", "cd"]), "a.pdf")


def test_damage_is_reported_or_mended() -> None:
    whole = pdf_of(["Some words on a page.", "And on another."])
    chance = random.Random(0)
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(8):
            data[chance.randrange(len(data))] = chance.randrange(256)
        cut = (
            bytes(data[: chance.randrange(9, len(data))]) if chance.random() < 0.5 else bytes(data)
        )
        with contextlib.suppress(UnreadableError):  # and no other error
            read_one(cut, "a.pdf")
