from __future__ import annotations

import codecs
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.retrieval.sources.decoding import decode
from specrag.retrieval.sources.source import UnreadableError

FRENCH = (
    "Le café était fermé parce que l'été les élèves préfèrent la plage. Où êtes-vous allés hier? "
    "Nous étions à la fenêtre, près du château, où le garçon a mangé une crêpe à la fraise.\r\n"
)
RUSSIAN = "Съешь же ещё этих мягких французских булок, да выпей чаю. Москва — столица России.\n"
GERMAN = "Die Straße ist für Fußgänger gesperrt. Über die Brücke führt ein schöner Weg. "
POLISH = "Zażółć gęślą jaźń. Pchnąć w tę łódź jeża lub ośm skrzyń fig. Kraków jest miastem. "
HUNGARIAN = (
    "A magyar nyelv az uráli nyelvcsalád tagja, a finnugor nyelvek közé tartozó ugor nyelvek "
    "egyike. Az ősi írás a rovásírás volt. Fűződik hozzá sok régi emlék is."
)
CHINESE = "今天天气很好，我们一起去公园散步吧。北京是中国的首都，有很多历史古迹。\n"
JAPANESE = "今日は天気がいいですね。東京は日本の首都であり、世界最大の都市の一つです。\n"


@pytest.mark.parametrize("text", ["a\r\nb\r\n", "a\rb", "naïve 中文 🙂\r\n", "", "\ufeffx"])
@pytest.mark.parametrize(
    ("mark", "codec", "name"),
    [
        (b"", "utf-8", "utf-8"),
        (codecs.BOM_UTF8, "utf-8", "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le", "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16-be", "utf-16"),
        (codecs.BOM_UTF32_LE, "utf-32-le", "utf-32"),
        (codecs.BOM_UTF32_BE, "utf-32-be", "utf-32"),
    ],
)
def test_marked_text_is_kept_exactly(mark: bytes, codec: str, name: str, text: str) -> None:
    if not mark and text.startswith("\ufeff"):
        return  # then it is the mark
    assert decode(mark + text.encode(codec)) == (text, name)


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_utf16_without_a_mark_is_told_by_its_zeros(codec: str) -> None:
    text = "Plain words,\r\nsome of them naïve."
    assert decode(text.encode(codec)) == (text, codec)


@pytest.mark.parametrize(
    ("text", "codec"),
    [
        (RUSSIAN, "cp1251"),
        (RUSSIAN.replace("—", "-"), "koi8-r"),
        (CHINESE, "gb18030"),
        (CHINESE * 50, "gbk"),
        (JAPANESE, "shift_jis"),
        (JAPANESE, "euc_jp"),
        (GERMAN, "latin-1"),  # all the likely code pages agree on it
        (RUSSIAN * 5000, "cp1251"),  # more than the sample
    ],
)
def test_old_encodings_are_guessed_when_the_guess_is_sure(text: str, codec: str) -> None:
    found, name = decode(text.encode(codec))
    assert found == text
    assert not name.startswith("utf")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"caf\xe9 au lait", "is not UTF-8 text (byte 3) and its encoding cannot be told; save"),
        (POLISH.encode("iso8859-2"), "its encoding cannot be told"),
        (FRENCH.encode("latin-1"), "its encoding may be cp125"),
        (HUNGARIAN.encode("cp1250"), "its encoding may be cp125"),
        ("café crème, ".encode("gbk", "replace") + "汉字".encode("gbk"), "cannot be told"),
        ("naïve café déjà. ".encode() * 9 + b"caf\xe9.", "mixes UTF-8 with another encoding (byte"),
        (b"PK\x03\x04\0\0", "is binary, not text (NUL at byte 4)"),
        (b"text\0text", "is binary, not text (NUL at byte 4)"),
        (random.Random(0).randbytes(300).replace(b"\0", b""), "is binary, not text"),
        (codecs.BOM_UTF8 + b"\xff", "starts with the mark of UTF-8 but is not UTF-8 text (byte 0)"),
        (codecs.BOM_UTF16_LE + b"abc", "starts with the mark of UTF-16 but is not UTF-16 text"),
    ],
)
def test_what_is_not_sure_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        decode(data)
    assert caught.value.reason.startswith(reason) or reason in caught.value.reason


def test_a_known_encoding_is_taken_where_nothing_better_is_known() -> None:
    assert decode(b"caf\xe9", "latin-1") == ("café", "latin-1")
    assert decode("café".encode(), "latin-1") == ("café", "utf-8")
    assert decode("café".encode("utf-16"), "latin-1") == ("café", "utf-16")
    with pytest.raises(UnreadableError, match=r"is not ascii text \(byte 3\)"):
        decode(b"caf\xe9", "ascii")
    with pytest.raises(UnreadableError, match="there is no encoding 'klingon'"):
        decode(b"\xe9", "klingon")


@given(st.binary(max_size=200))
@settings(deadline=None, max_examples=150)
def test_any_bytes_are_text_or_refused(data: bytes) -> None:
    try:
        text, _ = decode(data)
    except UnreadableError:
        return
    text.encode()


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
@settings(deadline=None, max_examples=150)
def test_utf8_text_is_never_taken_for_something_else(text: str) -> None:
    assert decode(text.encode())[0] == text.removeprefix("\ufeff")
