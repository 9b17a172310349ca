from __future__ import annotations

import pytest

from specrag.retrieval.sentences import (
    MAX_WORD_CHARACTERS,
    Span,
    line_spans,
    sentence_spans,
    spaced,
    word_spans,
)


def cut(text: str, spans: list[Span]) -> list[str]:
    return [text[start:end] for start, end in spans]


def sentences(text: str) -> list[str]:
    return cut(text, sentence_spans(text, 0, len(text)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ('He said "Stop." Then left.', ['He said "Stop."', "Then left."]),
        ("Wait... What?! Yes.", ["Wait...", "What?!", "Yes."]),
        ("First line\nsecond line. Next.", ["First line\nsecond line.", "Next."]),
        ("One.\r\nTwo.", ["One.", "Two."]),
        ("Intro:\n- one\n- two", ["Intro:", "- one", "- two"]),
        ("1. One\n2. Two", ["1. One", "2. Two"]),
        ("| a | b |\n|---|---|", ["| a | b |", "|---|---|"]),
        ("你好。今天好吗?不好!", ["你好。", "今天好吗?不好!"]),
        ("你好。今天好吗？不好！", ["你好。", "今天好吗？", "不好！"]),
        ("他说：「走。」她走了。", ["他说：「走。」", "她走了。"]),
        ("他说：“走。”她走了；天黑了。", ["他说：“走。”", "她走了；", "天黑了。"]),
        ("《你好！》完．半角｡好", ["《你好！》", "完．", "半角｡", "好"]),
        ("他走了……她笑了。", ["他走了……她笑了。"]),
        ("| A. B | C! D |\n| E? F. |\nEnd. H", ["| A. B | C! D |", "| E? F. |\nEnd.", "H"]),
        ("Text. More.\n  | a. B |", ["Text.", "More.", "| a. B |"]),
        ("a | b. C | d. E", ["a | b.", "C | d.", "E"]),
        ("नमस्ते। आप", ["नमस्ते।", "आप"]),
        ("", []),
        (" \n ", []),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "See Fig. 3 for more.",
        "Dr. Smith and Mr. Jones agree.",
        "J. R. R. Tolkien wrote it.",
        "It holds, e.g. The Hague does.",
        "Version 3.11 is needed.",
        "The file a.txt is read.",
        "Really? yes, really",
        "12. Install it",
    ],
)
def test_dots_that_end_no_sentence(text: str) -> None:
    assert sentences(text) == [text]


def test_a_number_may_end_a_sentence() -> None:
    assert sentences("It was in 2023. Then it ended.") == ["It was in 2023.", "Then it ended."]


def test_only_the_stretch_is_cut() -> None:
    text = "Before. One. Two. After."
    start, end = text.index("One"), text.index(" After")
    assert cut(text, sentence_spans(text, start, end)) == ["One.", "Two."]


def test_a_row_is_told_from_the_start_of_its_line() -> None:
    text = "x. | a. B |"
    start = text.index("|")
    assert cut(text, sentence_spans(text, start, len(text))) == ["| a.", "B |"]


@pytest.mark.parametrize("unit", ["| a. B ", "\n|", "a. ", "。", "1. ", " \t", "e.g. X "])
def test_long_text_takes_no_more_than_linear_time(unit: str) -> None:
    # A pattern or a look back that starts anew at each place would run for minutes.
    text = unit * (400_000 // len(unit))
    assert len(sentence_spans(text, 0, len(text))) <= len(text)


def test_lines() -> None:
    text = "a b\r\n\r\n  c \rd"
    assert cut(text, line_spans(text, 0, len(text))) == ["a b", "c", "d"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one, two", ["one,", "two"]),
        ("中文 and 日本", ["中", "文", "and", "日", "本"]),
        ("𠀀x", ["𠀀", "x"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("ab" * MAX_WORD_CHARACTERS, ["ab" * (MAX_WORD_CHARACTERS // 2)] * 2),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert cut(text, word_spans(text, 0, len(text))) == expected


@pytest.mark.parametrize("length", [1, 63, 64, 65, 128, 129])
def test_spaces_are_put_where_words_are_cut(length: int) -> None:
    text = f"x {'a' * length} 中文 y"
    assert spaced("a" * length).split() == cut("a" * length, word_spans("a" * length, 0, length))
    assert spaced(text).replace(" ", "") == text.replace(" ", "")
