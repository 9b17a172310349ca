"""The words of a text: what its content is made of, and what it is found by. Depends on nothing."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache

# Raised when ``search_terms`` or ``content_words`` change: an index holds what they gave.
TERMS_VERSION = 1

_HAN = r"\u3400-\u9fff"
_LETTERS = rf"[^\W_{_HAN}]+"  # up to a Chinese character, which is a word of its own
_WORD = re.compile(rf"[{_HAN}]|{_LETTERS}(?:[._'-]{_LETTERS})*")
_PLURAL = re.compile(r"(?<=[^\Ws_]{3})s$")  # zones is zone; pass stays pass
_COMMON = frozenset(
    _WORD.findall(
        "a about also an and any are as at be because been but by can could did do does for from "
        "had has have how i if in into is it its may me more most my no not of on one or other our "
        "out so some such than that the their them then there these they this those to up use used "
        "was we were what when where which who why will with would you your"
    )
)

# Scripts without spaces between words (Thai to Khmer, kana, Han), and Hangul, whose words take
# endings.
_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17d3\u3005-\u3007\u3041-\u309f\u30a1-\u30fa"
    r"\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\U00020000-\U0003ffff"
)
# Accents and vowel signs, which `\w` leaves out though they stand inside words.
_MARKS = (
    r"\u0300-\u036f\u0591-\u05bd\u064b-\u065f\u0670\u0900-\u0903\u093a-\u094f\u0981-\u0983"
    r"\u09bc-\u09cd\u0a3c-\u0a4d\u0abc-\u0acd\u0b3c-\u0b4d\u0bbe-\u0bcd\u0c3e-\u0c4d\u0cbc-\u0ccd"
    r"\u0d3e-\u0d4d"
)
_PIECE = rf"(?:[^\W_{_UNSPACED}]|[{_MARKS}])+"
_JOINT = r"(?:[.'-]|_+)"
_TOKEN = re.compile(rf"([{_UNSPACED}]+)|({_PIECE}(?:{_JOINT}{_PIECE})*)")
_JOINTS = re.compile(_JOINT)
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_ACRONYMS = re.compile(r"[A-Z]{2,}s")
_THOUSANDS = re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?![\d,])")
# One spelling for signs that have several; a soft hyphen is no part of its word.
_SAME_SIGN = {0x2019: "'", 0x2010: "-", 0x00AD: None}
_LONGEST = 64  # characters of a term; what is longer is data, such as a key, and is cut


def search_terms(text: str) -> Counter[str]:
    """Returns the terms that a text is found by, with how often each stands in it.

    A word counts without its English plural ending. A compound such as ``draft_tree``,
    ``DraftTree``, ``torch.nn`` or ``e-mail`` counts whole and in its parts, a number without its
    thousands separators. Scripts without spaces between words, and Korean, count as single
    characters and as overlapping pairs of characters.

    Args:
        text: Any text.
    """
    plain = unicodedata.normalize("NFKC", text).translate(_SAME_SIGN)
    plain = _THOUSANDS.sub(lambda number: number[0].replace(",", ""), plain)
    terms: list[str] = []
    for run, word in _TOKEN.findall(plain):
        terms += _run_terms(run) if run else _word_terms(word)
    return Counter(terms)


def query_terms(text: str) -> Counter[str]:
    """Returns the terms to search for: common English words only when there are no others.

    Args:
        text: The query.
    """
    terms = search_terms(text)
    asked = {term: count for term, count in terms.items() if term not in _COMMON}
    return Counter(asked) if asked else terms


def content_words(text: str) -> set[str]:
    """Returns the distinct words of a text in lower case, common English words left out.

    A plain plural counts as its singular; a Chinese character is a word of its own.

    Args:
        text: Any text.
    """
    words = (word for word in _WORD.findall(text.lower()) if word not in _COMMON)
    return {_PLURAL.sub("", word) for word in words}


def coverage(words: Iterable[str], counts: Mapping[str, int], num_passages: int) -> float:
    """Returns how much of what words ask for is known to a corpus, rare words counting more.

    Args:
        words: Content words of a question.
        counts: Passages that hold each known word.
        num_passages: Passages of the corpus.

    Returns:
        From 0, no word is known, to 1, all are; 1 without words.
    """
    rarity = {word: math.log((num_passages + 1) / (counts.get(word, 0) + 0.5)) for word in words}
    asked = sum(rarity.values())
    known = sum(value for word, value in rarity.items() if counts.get(word))
    return known / asked if asked > 0 else 1.0


def _run_terms(run: str) -> list[str]:
    run = run.casefold()
    return [*run, *map("".join, zip(run, run[1:], strict=False))]


@lru_cache(maxsize=1 << 16)
def _word_terms(word: str) -> tuple[str, ...]:
    word = word.removesuffix("'s").removesuffix("'S")
    pieces = [piece for piece in _JOINTS.split(word) if piece]
    whole = word if len(pieces) == 1 else word.casefold()
    if all(piece.isdecimal() for piece in pieces):
        return (whole[:_LONGEST],)  # 3.11 is neither 3 nor 11
    parts = pieces if len(pieces) > 1 else []
    humps = [hump for piece in pieces for hump in _humps(piece)]
    return tuple(_singular(term)[:_LONGEST] for term in [whole, *parts, *humps])


def _humps(piece: str) -> list[str]:
    """The words of a name in camel case, if there are several; a letter alone says nothing."""
    if len(piece) > _LONGEST or _ACRONYMS.fullmatch(piece):
        return []
    humps = _HUMPS.split(piece)
    return [hump for hump in humps if len(hump) > 1] if len(humps) > 1 else []


def _singular(word: str) -> str:
    """The rules of Harman's S stemmer ("How effective is suffixing?", 1991), and GPUs is GPU."""
    if _ACRONYMS.fullmatch(word):
        return word[:-1].casefold()
    word = word.casefold()
    if len(word) <= 3 or word in _COMMON or not word.endswith("s"):
        return word
    if word.endswith("ies") and word[-4] not in "ae":
        return word[:-3] + "y"
    return word if word[-2] in "us" else word[:-1]
