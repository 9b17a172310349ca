from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.retrieval.document import MetadataValue
from specrag.retrieval.sources.formats.front_matter import front_matter
from tests.retrieval.sources.samples import read_one


@pytest.mark.parametrize(
    ("lines", "facts"),
    [
        (["year: 2024", "score: 0.5", "draft: true"], {"year": 2024, "score": 0.5, "draft": True}),
        (["author: Ann Lee  # who"], {"author": "Ann Lee"}),
        (["a: 'x: y'", 'b: "2024"'], {"a": "x: y", "b": "2024"}),
        (["tags: [one, 'two', 3]"], {"tags": ("one", "two", "3")}),
        (["tags:", "  - one", "- two"], {"tags": ("one", "two")}),
        (["date: 2024-01-02", "code: 007"], {"date": "2024-01-02", "code": "007"}),
        (["# comment", "", "two words: x"], {"two words": "x"}),
        # What is not simple is passed over, and what is nested does not leak out.
        (["deep:", "  key: x", "a: 1"], {"a": 1}),
        (["a: |", "  long", "b: &anchor x", "c: *anchor", "d: {x: 1}", "e: !!set x"], {}),
        (["url:http://x", ": x", "- x"], {}),
        (["empty:"], {}),
    ],
)
def test_simple_yaml_is_read(lines: list[str], facts: dict[str, MetadataValue]) -> None:
    assert front_matter("\n".join(["---", *lines, "---", "# Text"])) == facts
    assert front_matter("\r\n".join(["---", *lines, "...", "# Text"])) == facts


@pytest.mark.parametrize(
    "text", ["", "# A\n---\na: 1\n---\n", "---\na: 1\n", "---", "----\na: 1\n---"]
)
def test_without_a_closed_head_there_are_no_facts(text: str) -> None:
    assert front_matter(text) == {}


@given(st.lists(st.sampled_from([*"a:-[]'\"#{}|>&* \n", "\r", "---", "key: "]), max_size=60))
@settings(deadline=None, max_examples=200)
def test_nothing_breaks_it(parts: list[str]) -> None:
    front_matter("---\n" + "".join(parts) + "\n---\n")


def test_the_head_stays_in_the_text() -> None:
    text = "---\nyear: 2024\nsuffix: .evil\n---\n# Title\n"
    document = read_one(text, "a.md")
    assert document.text == text
    assert document.metadata == {"year": 2024, "suffix": ".md"}
