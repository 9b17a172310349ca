from __future__ import annotations

import pytest

from specrag.retrieval.structure import (
    MAX_HEADING_CHARACTERS,
    Syntax,
    blocks,
    first_heading,
    syntax_of,
)


def found(text: str, syntax: Syntax) -> list[tuple[str, str]]:
    return [(block.kind, text[block.start : block.end]) for block in blocks(text, syntax)]


@pytest.mark.parametrize(
    ("source", "syntax"),
    [
        ("a.md", "markdown"),
        ("A.MD", "markdown"),
        ("x/a.markdown", "markdown"),
        ("a.rst", "rst"),
        ("a.rst.txt", "rst"),
        ("a.md.txt", "markdown"),
        ("a.py.txt", "plain"),
        ("a.b.txt", "plain"),
        (".txt", "plain"),
        ("x.y/a.PY", "code"),
        ("a.yaml", "code"),
        ("a.html", "plain"),
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


def test_indented_markdown_is_code_outside_lists() -> None:
    text = "Run:\n\n    a\n    b\n\n\tc\n\n- item\n\n    more of it\n\nEnd\n\n      d"
    assert found(text, "markdown") == [
        ("text", "Run:"),
        ("code", "    a\n    b"),
        ("code", "\tc"),
        ("text", "- item"),
        ("text", "    more of it"),
        ("text", "End"),
        ("code", "      d"),
    ]
    assert found("1. item\n\n# A\n\n    code", "markdown")[-1] == ("code", "    code")
    assert found("lazy\n    line", "markdown") == [("text", "lazy\n    line")]


def test_rst_knows_literal_blocks_and_code_directives() -> None:
    text = (
        "Run::\n\n  a\n\n  b. C\n\nText\n\n  quote\n\n"
        ".. code-block:: py\n   :linenos:\n\n   x = 1\n\n"
        ".. note::\n\n   prose. Here::\n\n      y\n\n   prose\n\nT::\n\nU\n===\n\n  quote"
    )
    assert found(text, "rst") == [
        ("text", "Run::"),
        ("code", "  a"),
        ("code", "  b. C"),
        ("text", "Text"),
        ("text", "  quote"),
        ("text", ".. code-block:: py\n   :linenos:"),
        ("code", "   x = 1"),
        ("text", ".. note::"),
        ("text", "   prose. Here::"),
        ("code", "      y"),
        ("text", "   prose"),
        ("text", "T::"),
        ("heading", "U\n==="),
        ("text", "  quote"),
    ]


def test_source_code_is_cut_at_blank_lines_and_outer_definitions() -> None:
    text = (
        "import x\n\n# About A.\n@decorated\nclass A:\n    a = 1\n\n"
        "    def f(self):\n        pass\n"
        "def g():\n    pass\nasync def h(x):\n    pass\n\nx = 1\n\n\npub fn k<T>() {\n\n}\n"
    )
    rows = [
        (text[block.start : block.end], block.path, block.is_outer)
        for block in blocks(text, "code")
    ]
    assert rows == [
        ("import x", (), True),
        ("# About A.\n@decorated\nclass A:\n    a = 1", ("class A",), True),
        ("    def f(self):\n        pass", ("class A",), False),
        ("def g():\n    pass", ("def g()",), True),
        ("async def h(x):\n    pass", ("async def h(x)",), True),
        ("x = 1", (), True),
        ("pub fn k<T>() {", ("pub fn k<T>()",), True),
        ("}", ("pub fn k<T>()",), False),
    ]


@pytest.mark.parametrize("line", ["type: text", "class = 1", "classify(x)", "  def f():", "data x"])
def test_lines_that_define_nothing(line: str) -> None:
    assert [block.path for block in blocks(line, "code")] == [()]


def test_rows_are_blocks() -> None:
    text = "a: 1\nb: # x\n\nc: ---\n---\n"
    assert found(text, "rows") == [("row", "a: 1\nb: # x"), ("row", "c: ---\n---")]


@pytest.mark.parametrize(
    ("text", "syntax"),
    [(f"# {'x' * 5000}\nt", "markdown"), (f"{'x' * 5000}\n{'=' * 5000}\nt", "rst")],
)
def test_a_long_heading_does_not_weigh_on_every_passage(text: str, syntax: Syntax) -> None:
    assert [block.path for block in blocks(text, syntax)][-1] == ("x" * MAX_HEADING_CHARACTERS,)
    assert blocks(f"class {'x' * 5000}:", "code")[0].path == (f"class {'x' * 74}",)


@pytest.mark.parametrize("syntax", ["markdown", "rst", "plain", "code", "rows"])
@pytest.mark.parametrize("text", ["", "\n \n\r\n"])
def test_blank_text_has_no_blocks(text: str, syntax: Syntax) -> None:
    assert blocks(text, syntax) == []
