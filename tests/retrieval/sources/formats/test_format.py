from __future__ import annotations

import pytest

from specrag.retrieval.sources.catalog import DEFAULT_PATTERNS
from specrag.retrieval.sources.formats.format import FORMATS, SUFFIXES, format_of, format_of_start
from specrag.retrieval.sources.patterns import matcher
from specrag.retrieval.sources.source import UnreadableError
from tests.retrieval.sources.samples import docx_of, pdf_of, read_one


def test_every_suffix_belongs_to_one_format() -> None:
    assert len(SUFFIXES) == len(set(SUFFIXES)) == sum(len(known.suffixes) for known in FORMATS)
    matches = matcher(DEFAULT_PATTERNS)
    for known in FORMATS:
        for suffix in known.suffixes:
            assert format_of(f"A{suffix.upper()}") is known
            assert matches(f"sub/a{suffix}")
    assert matches("sub/readme")
    assert not matches("program")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a.doc", "files of type .doc cannot be read; save it as .docx or .pdf"),
        ("a.PPTX", "files of type .pptx cannot be read; save it as .pdf"),
        ("a.xlsx", "files of type .xlsx cannot be read; save it as .csv"),
        ("a.rar", "files of type .rar cannot be read; unpack it"),
        ("a.ipynb", "files of type .ipynb cannot be read; export it as .md"),
    ],
)
def test_formats_that_cannot_be_read_say_what_to_do(name: str, reason: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        format_of(name)
    assert caught.value.reason == reason


def test_without_a_suffix_the_start_tells_the_format() -> None:
    assert read_one(pdf_of(["Words."]), "stdin").text == "Words."
    assert read_one(docx_of("Words."), "stdin").text == "Words."
    assert read_one("\n <!DOCTYPE html><p>Words.", "stdin").text == "Words."
    assert format_of_start(b"plain").suffixes[0] == ".adoc"
