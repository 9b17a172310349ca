"""How well a short answer fits the right ones, by the definitions of SQuAD and its Chinese kin."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal

_HAN = "\u3400-\u4dbf\u4e00-\u9fff"
_HAN_SIGN = re.compile(f"([{_HAN}])")
# Beside Han characters these are letters (vitamin A), not articles.
_ARTICLES = re.compile(rf"(?<![{_HAN}] )\b(?:a|an|the)\b(?! [{_HAN}])")
_NUMBER = re.compile(
    r"(?:(?<![\w.)\]%])([-−]))?"  # behind a number or a word it is a minus between two, or a dash
    r"[$€£¥]?(\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d*\.\d+|\d+)"
)


def normalise(text: str) -> str:
    """Returns a text as SQuAD's scoring compares it.

    Lower case, without punctuation and English articles, single spaces (Rajpurkar et al., 2016).
    Of Unicode, all punctuation goes and not only that of ASCII, as MLQA's scoring has it (Lewis
    et al., 2020): an en dash or a curly quote is no difference.

    Args:
        text: Any text.
    """
    return " ".join(_ARTICLES.sub(" ", _plain(text)).split())


def tokens(text: str) -> list[str]:
    """Returns the tokens of a text that scores are counted over: words, and single Han characters.

    MLQA's mixed segmentation for Chinese.

    Args:
        text: Any text; it is normalised.
    """
    return _segmented(normalise(text))


def exact_match(response: str, answers: Iterable[str]) -> float:
    """Returns 1.0 when the response is one of the answers, normalised; else 0.0.

    Args:
        response: What was said.
        answers: Right answers.
    """
    said = tokens(response)
    return float(any(said == tokens(answer) for answer in answers))


def token_f1(response: str, answers: Iterable[str]) -> float:
    """Returns the harmonic mean of token precision and recall against the nearest answer.

    Two texts that both normalise to nothing fit wholly, as in the scoring of SQuAD 2.0.

    Args:
        response: What was said.
        answers: Right answers; without any it is 0.0.
    """
    said = tokens(response)
    return max((_f1(said, tokens(answer)) for answer in answers), default=0.0)


def contains(response: str, answers: Iterable[str]) -> float:
    """Returns 1.0 when an answer stands in the response as whole tokens, normalised; else 0.0.

    The measure that work on adaptive retrieval calls accuracy or InAcc: it is fair to models that
    answer in sentences.

    Args:
        response: What was said.
        answers: Right answers; one that is nothing but punctuation and articles never counts.
    """
    said = tokens(response)
    return float(any(_place(tokens(answer), said) is not None for answer in answers))


def chosen(response: str, choices: Sequence[str]) -> str | None:
    """Returns the allowed answer that a response names first, as whole words; None if it does not.

    Args:
        response: What was said.
        choices: Allowed answers; of two that begin at one place, the longer one was meant.
    """
    # The choice "A" is an article otherwise.
    split: Callable[[str], list[str]] = tokens if all(map(tokens, choices)) else _words
    said = split(response)
    named = [
        (place, -len(wanted), choice)
        for choice in choices
        if (place := _place(wanted := split(choice), said)) is not None
    ]
    return min(named)[2] if named else None


def last_number(text: str) -> Decimal | None:
    """Returns the last number of a text, as answers to sums are given; None without one.

    Args:
        text: May write thousands with commas, decimals with a dot, a minus, and currency or per
            cent signs beside a number.
    """
    found = _NUMBER.findall(text)
    if not found:
        return None
    sign, digits = found[-1]
    number = Decimal(digits.replace(",", ""))
    return number.copy_negate() if sign else number


def _plain(text: str) -> str:
    return " ".join("".join(sign for sign in text.lower() if not _is_punctuation(sign)).split())


def _segmented(text: str) -> list[str]:
    return _HAN_SIGN.sub(r" \1 ", text).split()


def _words(text: str) -> list[str]:
    return _segmented(_plain(text))


def _f1(said: Sequence[str], right: Sequence[str]) -> float:
    if not said or not right:
        return float(said == right)
    shared = sum((Counter(said) & Counter(right)).values())
    return 2 * shared / (len(said) + len(right))


def _place(wanted: list[str], said: list[str]) -> int | None:
    size = len(wanted)
    starts = range(len(said) - size + 1) if size else ()
    return next((at for at in starts if said[at : at + size] == wanted), None)


def _is_punctuation(sign: str) -> bool:
    return sign in string.punctuation or unicodedata.category(sign).startswith("P")
