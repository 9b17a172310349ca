"""The scores of short answers by their definition: one character, one token, one pair at a time."""

from __future__ import annotations

import unicodedata
from fractions import Fraction

ASCII_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


def squad_tokens(text: str) -> list[str]:
    """Returns the words that SQuAD compares, for a text without Han characters."""
    words, word = [], ""
    for sign in text.lower() + " ":
        if sign in ASCII_PUNCTUATION or unicodedata.category(sign)[0] == "P":
            continue
        if not sign.isspace():
            word += sign
            continue
        words += _without_articles(word)
        word = ""
    return words


def _without_articles(word: str) -> list[str]:
    """An article stands alone: letters, digits and underscores are part of a word, no other."""
    pieces, piece = [], ""
    for sign in word:
        if sign.isalnum() or sign == "_":
            piece += sign
        else:
            pieces += [piece, sign]
            piece = ""
    pieces.append(piece)
    return "".join(" " if piece in ("a", "an", "the") else piece for piece in pieces).split()


def chinese_tokens(text: str) -> list[str]:
    """Returns the tokens that MLQA compares for Chinese, where articles are none."""
    found, word = [], ""
    for sign in text.lower() + " ":
        if sign in ASCII_PUNCTUATION or unicodedata.category(sign)[0] == "P":
            continue
        single = 0x3400 <= ord(sign) <= 0x4DBF or 0x4E00 <= ord(sign) <= 0x9FFF
        if single or sign.isspace():
            found += [word] if word else []
            found += [sign] if single else []
            word = ""
        else:
            word += sign
    return found


def f1(said: list[str], right: list[str]) -> Fraction:
    """Returns the harmonic mean of precision and recall, pairing equal tokens off."""
    if not said or not right:
        return Fraction(said == right)
    left, shared = list(right), 0
    for token in said:
        if token in left:
            left.remove(token)
            shared += 1
    if not shared:
        return Fraction(0)
    precision, recall = Fraction(shared, len(said)), Fraction(shared, len(right))
    return 2 * precision * recall / (precision + recall)


def stands_in(wanted: list[str], said: list[str]) -> bool:
    """Tells whether tokens follow each other somewhere, by joining with a sign that none holds."""
    border = "\x00"
    joined = [border + border.join(found) + border for found in (wanted, said)]
    return bool(wanted) and joined[0] in joined[1]
