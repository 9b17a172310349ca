"""Borders of sentences, lines and words in English and Chinese text. Depends on nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

Span = tuple[int, int]

# Longer runs without a space (addresses, encoded data) are cut. Many tokenizers map a very long
# word to one unknown token, so its token count would not show how long it is.
MAX_WORD_CHARACTERS = 64

_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]{{1,{MAX_WORD_CHARACTERS}}}")
_LONG_WORD = re.compile(rf"[^\s{_UNSPACED}]{{{MAX_WORD_CHARACTERS}}}(?=[^\s{_UNSPACED}])")
_LINE = re.compile(r"[^\r\n]+")
# The look-behind keeps a run of dots from being scanned again from each of its dots.
_BORDER = re.compile(
    r"(?<![^\r\n])[ \t]*+\|[^\r\n]*+"  # a whole table row, within which no sentence ends
    r"|(?<![.!?…])[.!?…]++[\"'”’»)\]]*+(?=\s)"  # spaced scripts: a space must follow
    r"|[。．｡！？；।؟]++[”’」』）】〉》\"']*+"  # unspaced scripts: none is needed
    r"|(?:\r\n?|\n)(?=[ \t]*+(?:[-*+•][ \t]|\d{1,3}[.)][ \t]|\|))"  # list items, table rows
)
_ABBREVIATION = re.compile(
    r"al|approx|apr|aug|cf|ch|corp|dec|dept|dr|e\.g|ed|eds|eq|esp|feb|fig|figs|i\.e|inc|jan|jr|jul"
    r"|jun|ltd|mr|mrs|ms|nov|oct|pp|prof|sep|sept|sr|st|vol|vs",
    re.IGNORECASE,
)
_LONGEST_ABBREVIATION = 8
_LAST_WORD = re.compile(r"[\w.]+$")


def sentence_spans(text: str, start: int, end: int) -> list[Span]:
    """Finds the sentences of a stretch; list items and table rows count as sentences.

    Args:
        text: The whole text.
        start: Offset where the stretch begins.
        end: Offset after it.

    Returns:
        Offsets [start, end) without surrounding whitespace; only whitespace lies between them.
    """
    cuts = [start]
    for match in _BORDER.finditer(text, start, end):
        if _ends_sentence(text, cuts[-1], match):
            cuts.append(match.end())
    return _trimmed(text, [*cuts, end])


def line_spans(text: str, start: int, end: int) -> list[Span]:
    """Finds the lines of a stretch that are not blank, trimmed; arguments as above."""
    cuts = [match.start() for match in _LINE.finditer(text, start, end)]
    return _trimmed(text, [*cuts, end])


def word_spans(text: str, start: int, end: int) -> list[Span]:
    """Finds the words of a stretch; a Chinese or Japanese character is a word; arguments as above.

    A word longer than ``MAX_WORD_CHARACTERS`` is cut into pieces of that length.
    """
    return [match.span() for match in _WORD.finditer(text, start, end)]


def spaced(stretch: str) -> str:
    """Puts a space wherever ``word_spans`` cuts a word that is too long."""
    return _LONG_WORD.sub(r"\g<0> ", stretch)


def _ends_sentence(text: str, start: int, match: re.Match[str]) -> bool:
    first = match.group()[0]
    if first not in ".!?…":
        return first not in " \t|"
    following = text[match.end() : match.end() + 4].lstrip()[:1]
    if following.islower():
        return False
    if match.group() != ".":
        return True
    head = text[max(start, match.start() - _LONGEST_ABBREVIATION) : match.start()]
    word = _LAST_WORD.search(head)
    last = word.group() if word else ""
    is_initial = len(last) == 1 and last.isupper()
    # `1. Install it` at the start of a sentence is the number of a list item.
    is_item_number = last.isdigit() and text[start : match.start()].strip() == last
    return not (is_initial or is_item_number or _ABBREVIATION.fullmatch(last))


def _trimmed(text: str, cuts: list[int]) -> list[Span]:
    return list(_trimmed_spans(text, cuts))


def _trimmed_spans(text: str, cuts: list[int]) -> Iterator[Span]:
    for start, end in zip(cuts, cuts[1:], strict=False):
        stretch = text[start:end]
        left = start + len(stretch) - len(stretch.lstrip())
        right = end - (len(stretch) - len(stretch.rstrip()))
        if left < right:
            yield left, right
