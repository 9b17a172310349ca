"""One page that any browser shows: whole, without scripts or network, and hard to inject into."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from specrag.evaluation.plots.canvas import as_svg
from specrag.evaluation.plots.gallery import caption, draw
from specrag.evaluation.reports.page import to_page
from specrag.evaluation.reports.report import KINDS, Kind, Report
from tests.evaluation.reports.samples import HOSTILE, hostile_report, report

_VOID = ("meta", "br", "hr", "img", "link", "input")
_SVG = (
    '<svg xmlns:xlink="http://www.w3.org/1999/xlink" width="1pt" '
    'xmlns="http://www.w3.org/2000/svg"><defs><path id="m1"/></defs>'
    '<use xlink:href="#m1" style="fill: url(#m1)"/><text>ms</text></svg>'
)


class _Parsed(HTMLParser):
    """Checks that elements are closed in order, and remembers what it saw."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text_of(self, tag: str) -> list[str]:
        return [data for name, data in self.texts if name == tag]


def _whole(asked: Report) -> str:
    pytest.importorskip("matplotlib")
    drawn = draw(asked.kind, asked.figures)
    return to_page(asked, {name: as_svg(figure) for name, figure in drawn.items()})


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_is_whole_and_needs_nothing(kind: Kind) -> None:
    text = _whole(report(kind))
    page = _Parsed(text)
    assert not re.search(r"https?://|//[a-z]+\.[a-z]|@import|<link|<img|javascript:", text)
    assert page.of("script") == []
    for _, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on")]
        assert not {"src", "srcset", "action"} & attributes.keys()
        reference = attributes.get("xlink:href") or attributes.get("href")
        assert reference is None or reference.startswith("#")


@pytest.mark.parametrize("kind", KINDS)
def test_names_in_the_page_are_unique_and_known(kind: Kind) -> None:
    text = _whole(report(kind))
    named = [attributes["id"] for _, attributes in _Parsed(text).elements if "id" in attributes]
    assert len(named) == len(set(named))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', text)) <= set(named)


@pytest.mark.parametrize("kind", KINDS)
def test_it_can_be_read_aloud(kind: Kind) -> None:
    page = _Parsed(_whole(report(kind)))
    assert page.of("html") == [{"lang": "en"}]
    assert len(page.of("h1")) == len(page.of("title")) == len(page.of("main")) == 1
    assert len(page.of("h2")) == len(page.of("section"))
    assert page.of("table")
    assert {cell["scope"] for cell in page.of("th")} == {"col", "row"}
    pictures = [each for each in page.of("svg") if each.get("role") == "img"]
    assert [each["aria-label"] for each in pictures] == page.text_of("figcaption")
    assert len(pictures) == len(page.of("figure")) > 2


def test_a_picture_is_inlined_without_namespaces_and_under_its_own_names() -> None:
    text = to_page(report("speed"), {"pass_costs": _SVG})
    assert f'<svg role="img" aria-label="{caption("pass_costs")}" width="1pt">' in text
    assert '<path id="pass_costs-m1"/>' in text
    assert '<use xlink:href="#pass_costs-m1" style="fill: url(#pass_costs-m1)"/>' in text


def test_light_dark_and_paper_are_thought_of() -> None:
    text = to_page(report("qa"), {})
    assert "color-scheme: light dark" in text
    assert "@media print" in text
    assert "<svg" not in text
    assert "Pictures" not in text


def test_notes_stand_above_the_figures() -> None:
    text = to_page(report("qa"), {}, "there are no pictures")
    notes = _Parsed(text).text_of("li")
    assert notes == ["a first note", "there are no pictures"]
    assert text.index("<ul>") < text.index("<table>")


def test_hostile_names_are_shown_and_do_nothing() -> None:
    text = _whole(hostile_report())
    page = _Parsed(text)
    assert page.of("script") == page.of("img") == page.of("a") == []
    # All of the attack is there to be read, the newline of the heading included.
    assert page.text_of("h1") == [HOSTILE]
    assert HOSTILE in page.text_of("td")
    assert "default-src 'none'" in text
