"""The words of a text that carry its content, and how rare they are. Depends on nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

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
