from __future__ import annotations

import pytest

from specrag.retrieval.sources.formats import html
from specrag.retrieval.sources.source import UnreadableError
from specrag.retrieval.splitter import Splitter
from tests.retrieval.sources.samples import read_one


def text_of(page: str) -> str:
    return read_one(page, "a.html").text


def test_a_page_becomes_markdown() -> None:
    page = """<!doctype html><html><head><title> The  page </title><style>p {}</style></head><body>
    <nav><a href="/">Home</a></nav><h1>Top</h1><p>One <b>bold</b>
    line.<br>Next &amp; last.</p><ul><li>first<ul><li>inner</li></ul><li>second</ul>
    <ol><li>uno<li><p>due</p></ol><pre>
  x = 1
    y</pre><script>evil()</script><!-- comment -->
    <table><tr><th>A<th>B</tr><tr><td>1<td>2 | 3</tr></table><h2>Low</h2>end
    <img src=x alt="a picture">"""
    document = read_one(page, "a.html")
    assert document.text == (
        "# Top\n\nOne bold line.\nNext & last.\n\n- first\n  - inner\n- second\n\n"
        "1. uno\n2. due\n\n"
        "```\n  x = 1\n    y\n```\n\n| A | B |\n| 1 | 2 \\| 3 |\n\n## Low\n\nend a picture"
    )
    assert (document.title, document.syntax) == ("Top", "markdown")
    passages = Splitter(20, 0, lambda texts: [len(text.split()) for text in texts]).split(document)
    assert passages[-1].heading == "Top > Low"
    assert {passage.line for passage in passages} == {None}


def test_the_title_is_that_of_the_page_where_no_heading_is() -> None:
    document = read_one("<title>A\n title</title><p>x", "a.htm")
    assert (document.title, document.text) == ("A title", "x")


def test_a_page_of_links_only_keeps_them() -> None:
    assert text_of("<nav><p>Home</p>") == "Home"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        # Tables that lay out a page are no tables.
        ("<table><tr><td>menu<td><h1>T</h1><p>a<p>b</table>", "menu\n\n# T\n\na\n\nb"),
        (
            "<table><tr><td>x<table><tr><td>1<td>2</table>y<tr><td>z</table>",
            "x\n\n| 1 | 2 |\n\ny\n\nz",
        ),
        ("<dl><dt>term<dd>meaning</dl>", "term\n\nmeaning"),
        ("<p># no heading</p><p>---</p><p>```</p>", "\\# no heading\n\n\\---\n\n\\```"),
        ("text</b></div></ul></table></pre></h1></li> more", "text more"),
        ("<li>lonely", "- lonely"),
        ("<p>a<p>b<div>c", "a\n\nb\n\nc"),
        ("&#0;&#xD800;&lt;x", "\ufffd\ufffd<x"),
        ("no markup at all", "no markup at all"),
    ],
)
def test_odd_pages(page: str, text: str) -> None:
    assert text_of(page) == text


@pytest.mark.parametrize(
    ("head", "codec", "name"),
    [
        ('<meta charset="windows-1251">', "cp1251", "windows-1251"),
        ('<meta http-equiv=x content="text/html; charset=koi8-r">', "koi8-r", "koi8-r"),
        ('<?xml version="1.0" encoding="iso-8859-1"?>', "cp1252", "cp1252"),
        ('<meta charset="utf-8">', "utf-8", None),
        ('<meta charset="utf-16">', "utf-8", None),
        ('<meta charset="klingon">', "utf-8", None),
    ],
)
def test_a_page_names_its_encoding(head: str, codec: str, name: str | None) -> None:
    word = "тест" if codec != "cp1252" else "café – thé"
    document = read_one(f"{head}<p>{word}".encode(codec), "a.html")
    assert (document.text, document.metadata.get("encoding")) == (word, name)


@pytest.mark.parametrize("tag", ["div", "ul", "table", "b", "blockquote", "pre"])
def test_deep_pages_are_read(tag: str) -> None:
    inner = f"<{tag}>" * 20_000 + "deep" + f"</{tag}>" * 20_000
    assert "deep" in text_of(f"{inner}<p>after")
    assert text_of(f"{inner}<p>after").rstrip("`\n").endswith(("after", "deep"))


@pytest.mark.parametrize(
    "unit",
    ["<!--", "<a ", "</", '<a href="', "<a b b b ", "<a/", "<![CDATA[", "<?", "&", "<b><i></b>"],
)
def test_broken_tags_take_no_time(unit: str) -> None:
    # The parser of the standard library needs hours for some of these.
    read_one("<p>text</p>" + unit * (1_000_000 // len(unit)), "a.html")


def test_long_attributes_lose_nothing() -> None:
    # Beyond ten million characters lxml drops the whole page without a word, by default.
    assert text_of(f"<img src='data:{'x' * 11_000_000}'>words") == "words"


def test_the_text_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "MAX_TEXT_CHARACTERS", 10)
    with pytest.raises(UnreadableError, match="holds more than 10 characters of text"):
        read_one("<p>12345<p>12345<p>12345", "a.html")
