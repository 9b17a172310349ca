"""How well a short answer fits the right ones, by the definitions of SQuAD and its Chinese kin."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation

_ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)
_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+|\d)")
_ABSTAINING = re.compile(
    r"\b(?:i|we)(?:'m| am| are|'re)? (?:do not|don't|cannot|can't|could not|couldn't|am not able to"
    r"|not able to|unable to|not sure|not certain)\b(?: (?:know|say|tell|answer|determine|find|be"
    r" sure|provide|have (?:enough|any|access|information|the)))?"
    r"|\b(?:i am|i'm) (?:unable|not able|not sure|sorry)\b"
    r"|\b(?:does|do|did) not (?:say|mention|state|specify|provide|contain|include|give)\b"
    r"|\b(?:is|are|was|were) not (?:mentioned|stated|specified|provided|given|in the (?:context|"
    r"passages?|documents?|text))\b"
    r"|\b(?:no|not enough|insufficient) information\b"
    r"|\bcannot be (?:determined|answered|found|said)\b"
    r"|不知道|无法(?:回答|确定|得知|判断)|没有(?:提到|提及|说明|相关信息|足够的信息)|未(?:提到|提及|说明)",
    re.IGNORECASE,
)


def normalise(text: str) -> str:
    """Returns a text as SQuAD's scoring compares it.

    Lower case, without punctuation and English articles, single spaces. Punctuation of other
    scripts goes as well, as in the scripts for Chinese.

    Args:
        text: Any text.
    """
    kept = "".join(sign for sign in text.lower() if not _is_punctuation(sign))
    return " ".join(_ARTICLES.sub(" ", kept).split())


def tokens(text: str) -> list[str]:
    """Returns the tokens of a text that scores are counted over: words, and single Han characters.

    Args:
        text: Any text; it is normalised.
    """
    spaced = "".join(f" {sign} " if _is_han(sign) else sign for sign in normalise(text))
    return spaced.split()


def exact_match(response: str, answers: Sequence[str]) -> float:
    """Returns 1.0 when the response is one of the answers, normalised; else 0.0.

    Args:
        response: What was said.
        answers: Right answers.
    """
    said = tokens(response)
    return float(any(said == tokens(answer) for answer in answers))


def token_f1(response: str, answers: Sequence[str]) -> float:
    """Returns the harmonic mean of token precision and recall against the nearest answer.

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
    return float(any(_stands_in(tokens(answer), said) for answer in answers))


def chosen(response: str, choices: Sequence[str]) -> str | None:
    """Returns the first of the allowed answers that a response names as a whole word.

    Args:
        response: What was said.
        choices: Allowed answers.
    """
    said = tokens(response)
    places = [(_place(tokens(choice), said), choice) for choice in choices]
    named = [(place, choice) for place, choice in places if place is not None]
    return min(named)[1] if named else None


def last_number(text: str) -> Decimal | None:
    """Returns the last number of a text, as answers to sums are given; None without one.

    Args:
        text: May write thousands with commas, and currency or per cent signs beside a number.
    """
    found = _NUMBER.findall(text)
    try:
        return Decimal(found[-1].replace(",", "")) if found else None
    except InvalidOperation:
        return None


def abstains(response: str) -> bool:
    """Tells whether a response says that it has no answer, in English or Chinese.

    Args:
        response: What was said; a blank one says nothing and therefore abstains.
    """
    return not response.strip() or _ABSTAINING.search(response.replace("’", "'")) is not None


def _f1(said: Sequence[str], right: Sequence[str]) -> float:
    if not said or not right:
        return float(said == right)
    shared = sum((Counter(said) & Counter(right)).values())
    return 2 * shared / (len(said) + len(right))


def _stands_in(wanted: Sequence[str], said: Sequence[str]) -> bool:
    return _place(wanted, said) is not None


def _place(wanted: Sequence[str], said: Sequence[str]) -> int | None:
    size = len(wanted)
    if not size:
        return None
    starts = range(len(said) - size + 1)
    return next((at for at in starts if said[at : at + size] == list(wanted)), None)


def _is_punctuation(sign: str) -> bool:
    return sign in string.punctuation or unicodedata.category(sign).startswith("P")


def _is_han(sign: str) -> bool:
    return "\u4e00" <= sign <= "\u9fff" or "\u3400" <= sign <= "\u4dbf"
