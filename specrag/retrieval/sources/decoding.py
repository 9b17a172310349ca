"""Turns the bytes of text files into text. Depends on the source types."""

from __future__ import annotations

import codecs
import re

from charset_normalizer import from_bytes

from specrag.retrieval.sources.source import UnreadableError

# UTF-32 comes first: its little-endian mark starts with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
UTF8_NAMES = ("utf-8", "utf-8-sig")
_SAMPLE_BYTES = 1 << 18
_UNSHOWN = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
# A guess counts only when it is sure. charset-normalizer gives a mess ("chaos") and a likeness to
# languages ("coherence") to each encoding it thinks of; it was seen to take Polish for Icelandic
# below this coherence, and cannot tell the Latin code pages apart by these figures.
_MAX_CHAOS = 0.1
_MIN_COHERENCE = 0.4
_CHAOS_MARGIN, _COHERENCE_MARGIN = 0.05, 0.1  # as good as the best, nearly
_MULTIBYTE = ("big5", "cp932", "cp949", "cp950", "euc_", "gb", "hz", "iso2022", "johab", "shift_")
_MIN_HIGH_BYTES = 20  # outside ASCII


def decode(data: bytes, fallback: str | None = None) -> tuple[str, str]:
    """Decodes a text file without changing its line ends.

    UTF-8 is tried first, then what a byte order mark names, UTF-16 without a mark, the fallback,
    and last a guess by charset-normalizer that counts only when it is sure.

    Args:
        data: The file.
        fallback: The encoding of what is not UTF-8 and has no mark, when it is known.

    Returns:
        The text without byte order mark, and the encoding's name.

    Raises:
        UnreadableError: The bytes are no text, or no encoding fits them for sure.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return _marked(data, name)
    if b"\0" in data:
        return _wide(data)
    try:
        return data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError as error:
        return _forced(data, fallback) if fallback else _guessed(data, error.start)


def _forced(data: bytes, encoding: str) -> tuple[str, str]:
    try:
        return data.decode(encoding), encoding
    except LookupError as error:
        raise UnreadableError(f"cannot be read: there is no encoding {encoding!r}") from error
    except UnicodeError as error:
        raise UnreadableError(f"is not {encoding} text{_place(error)}") from error


def _marked(data: bytes, name: str) -> tuple[str, str]:
    try:
        return data.decode(name), "utf-8" if name == "utf-8-sig" else name
    except UnicodeError as error:
        shown = name.removesuffix("-sig").upper()
        raise UnreadableError(
            f"starts with the mark of {shown} but is not {shown} text{_place(error)}"
        ) from error


def _place(error: UnicodeError) -> str:
    return f" (byte {error.start})" if isinstance(error, UnicodeDecodeError) else ""


def _wide(data: bytes) -> tuple[str, str]:
    """Decodes UTF-16 without a mark, told by zeros that stand in every other byte only."""
    name = _parity(data)
    if name is not None:
        try:
            text = data.decode(name)
        except UnicodeDecodeError:
            text = "\0"
        if not _UNSHOWN.search(text):
            return text, name
    raise UnreadableError(f"is binary, not text (NUL at byte {data.index(0)})")


def _parity(data: bytes) -> str | None:
    sample = data[:_SAMPLE_BYTES]
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    if max(even, odd) < 0.2 * (len(sample) // 2 + 1) or min(even, odd) > 0:
        return None
    return "utf-16-le" if odd else "utf-16-be"


def _guessed(data: bytes, first_bad: int) -> tuple[str, str]:
    sample = data[:_SAMPLE_BYTES]
    if len(data) > _SAMPLE_BYTES:  # the sample must not end within a character
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    read = sample.decode("utf-8", errors="replace")
    num_bad = read.count("\ufffd")
    num_good = sum(character > "\x7f" for character in read) - num_bad
    if num_good > num_bad:
        raise UnreadableError(
            f"mixes UTF-8 with another encoding (byte {first_bad}); save it as UTF-8"
        )
    if _UNSHOWN.search(read):
        raise UnreadableError(f"is binary, not text (byte {first_bad})")
    names = _guesses(sample)
    if len(names) == 1:
        try:
            return data.decode(names[0]), names[0]
        except UnicodeDecodeError:
            names = []
    told = f"may be {' or '.join(names[:2])}" if names else "cannot be told"
    raise UnreadableError(
        f"is not UTF-8 text (byte {first_bad}) and its encoding {told}; save it as UTF-8"
    )


def _guesses(sample: bytes) -> list[str]:
    """Returns the encodings that are about equally likely and differ; none when none is likely."""
    matches = from_bytes(sample)
    best = matches.best()
    if best is None or best.chaos > _MAX_CHAOS:
        return []
    if best.encoding.startswith(_MULTIBYTE):
        return [best.encoding] if sum(byte > 0x7F for byte in sample) >= _MIN_HIGH_BYTES else []
    if best.coherence < _MIN_COHERENCE:
        return []
    texts = {str(best): best.encoding}
    for match in matches:
        is_close = match.chaos <= best.chaos + _CHAOS_MARGIN
        if is_close and match.coherence >= best.coherence - _COHERENCE_MARGIN:
            texts.setdefault(str(match), match.encoding)
    return list(texts.values())
