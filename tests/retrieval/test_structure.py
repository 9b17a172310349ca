from __future__ import annotations

import pytest

from specrag.retrieval.structure import Syntax, blocks, first_heading, syntax_of


def found(text: str, syntax: Syntax) -> list[tuple[str, str]]:
    return [(block.kind, text[block.start : block.end]) for block in blocks(text, syntax)]


@pytest.mark.parametrize(
    ("source", "syntax"),
    [
        ("a.md", "markdown"),
        ("A.MD", "markdown"),
        ("x/a.markdown", "markdown"),
        ("a.rst", "rst"),
        ("a.txt", "plain"),
        ("a", "plain"),
        ("", "plain"),
    ],
)
def test_the_suffix_tells_the_syntax(source: str, syntax: str) -> None:
    assert syntax_of(source) == syntax


def test_markdown_blocks() -> None:
    text = "# A\nline one\nline two\n\n```py\ncode\n\n# no heading\n```\n- item\n## B ##\nend"
    assert found(text, "markdown") == [
        ("heading", "# A"),
        ("text", "line one\nline two"),
        ("code", "```py\ncode\n\n# no heading\n```"),
        ("text", "- item"),
        ("heading", "## B ##"),
        ("text", "end"),
    ]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_line_ends_are_all_the_same(line_end: str) -> None:
    text = line_end.join(["# A", "", "one", "two", "", "```", "x", "```"])
    assert [kind for kind, _ in found(text, "markdown")] == ["heading", "text", "code"]


def test_paths_follow_the_levels() -> None:
    text = "# A\na\n### C\nc\n## B\nb\n# D\nd"
    paths = [block.path for block in blocks(text, "markdown") if block.kind == "text"]
    assert paths == [("A",), ("A", "C"), ("A", "B"), ("D",)]


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("# C#", "C#"),
        ("# Closed ##", "Closed"),
        ("   ###   Three  ", "Three"),
        ("#", None),
        ("#hashtag", None),
        ("    # indented code", None),
        ("####### seven", None),
    ],
)
def test_markdown_headings(line: str, title: str | None) -> None:
    assert first_heading(line, "markdown") == title


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Title\n===", "Title"),
        ("Title\n---", "Title"),
        ("---\nkey: value\n---\n# Real", "Real"),  # front matter
        ("two\nlines\n---", None),
        ("Title\n--", None),
        ("---", None),
    ],
)
def test_underlined_markdown_headings(text: str, title: str | None) -> None:
    assert first_heading(text, "markdown") == title


@pytest.mark.parametrize(
    "text",
    [
        "```\nnever closed\n# x",
        "````\n```\n# x\n````",
        "~~~\n```\n# x\n~~~",
        "```\n~~~\n# x\n``` not a closing\n```",
        "  ```\n# x\n  ```",
    ],
)
def test_fenced_code_is_one_block(text: str) -> None:
    assert found(text, "markdown") == [("code", text)]


def test_inline_code_opens_no_fence() -> None:
    assert found("```x``` is code\n# A", "markdown") == [
        ("text", "```x``` is code"),
        ("heading", "# A"),
    ]


def test_rst_levels_come_in_the_order_of_their_styles() -> None:
    text = "===\nTop\n===\n\nMid\n---\n\nLow\n~~~\ntext\n\nMid two\n-------\nmore"
    headings = [block.path for block in blocks(text, "rst") if block.kind == "heading"]
    assert headings == [("Top",), ("Top", "Mid"), ("Top", "Mid", "Low"), ("Top", "Mid two")]
    assert found(text, "rst")[0] == ("heading", "===\nTop\n===")


def test_a_short_underline_is_no_rst_heading() -> None:
    assert first_heading("A long title\n---", "rst") is None


def test_plain_text_has_paragraphs_only() -> None:
    text = "# a\n\n```\nb\n\n\nc\n==="
    assert found(text, "plain") == [("text", "# a"), ("text", "```\nb"), ("text", "c\n===")]


@pytest.mark.parametrize("syntax", ["markdown", "rst", "plain"])
@pytest.mark.parametrize("text", ["", "\n \n\r\n"])
def test_blank_text_has_no_blocks(text: str, syntax: Syntax) -> None:
    assert blocks(text, syntax) == []
