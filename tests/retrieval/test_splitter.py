from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.errors import ConfigError
from specrag.retrieval.document import Document, Passage
from specrag.retrieval.encoder import HashingEncoder
from specrag.retrieval.sentences import MAX_WORD_CHARACTERS
from specrag.retrieval.splitter import Splitter, TokenCounter
from specrag.retrieval.structure import Syntax

_WIDE = "你好，这是中文。"


def count_words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def count_characters(texts: Sequence[str]) -> list[int]:
    return [len("".join(text.split())) for text in texts]


def count_nothing(texts: Sequence[str]) -> list[int]:
    return [0] * len(texts)


def split(text: str, size: int, overlap: int = 0, source: str = "a.md") -> list[Passage]:
    return Splitter(size, overlap, count_words).split(Document("a", text, source))


def texts_of(passages: Sequence[Passage]) -> list[str]:
    return [passage.text for passage in passages]


def uncovered(text: str, passages: Sequence[Passage]) -> str:
    """The oracle: marks every character that a passage holds, one by one."""
    covered = {place for p in passages for place in range(p.start, p.end)}
    return "".join(
        character
        for place, character in enumerate(text)
        if place not in covered and not character.isspace()
    )


fragments = st.sampled_from(
    [
        *["\n", "\n\n", "\r\n", "\r", " ", "\t", "\u3000", "\x0b", "\u2028", "\x1c"],
        *[
            "# A\n",
            "## B\n",
            "\nTitle\n===\n",
            "\n---\n",
            "```\n",
            "~~~py\n",
            "- item\n",
            "| a | b |\n",
            "    code\n",
            "Run::\n\n",
            "def f():\n",
            "    pass\n",
        ],
        *["One. ", "Two! ", "e.g. ", "Dr. Who", "3. ", "...", '"', "word ", "a", "🙂", "é", "\0"],
        *[_WIDE, "中", "。", "！」", "x" * 63, "y" * 130, "한국어 "],
    ]
)
structured_texts = st.lists(fragments, max_size=60).map("".join)
any_texts = st.one_of(structured_texts, st.text(max_size=200))


@pytest.mark.parametrize(
    "counter", [count_words, count_characters, count_nothing, HashingEncoder().count_tokens]
)
@pytest.mark.parametrize("source", ["a.md", "a.rst", "a.txt", "a.py", "a.csv"])
@given(text=any_texts, size=st.integers(1, 40), overlap=st.integers(0, 39))
@settings(max_examples=40, deadline=None)
def test_passages_cover_the_text_with_exact_offsets(
    counter: TokenCounter, source: str, text: str, size: int, overlap: int
) -> None:
    splitter = Splitter(size, min(overlap, size - 1), counter)
    syntax: Syntax | None = "rows" if source == "a.csv" else None
    passages = splitter.split(Document("a", text, source, syntax=syntax), first_id=7)

    assert all(text[p.start : p.end] == p.text for p in passages)
    assert uncovered(text, passages) == ""
    starts = [p.start for p in passages]
    ends = [p.end for p in passages]
    assert starts == sorted(set(starts))
    assert ends == sorted(set(ends))
    assert [p.id for p in passages] == list(range(7, 7 + len(passages)))
    assert all(p.text.strip() for p in passages)


@given(text=any_texts, size=st.integers(1, 40), overlap=st.integers(0, 39))
@settings(max_examples=150, deadline=None)
def test_passages_stay_within_the_size(text: str, size: int, overlap: int) -> None:
    splitter = Splitter(size, min(overlap, size - 1), count_characters)
    for passage in splitter.split(Document("a", text, "a.md")):
        (tokens,) = count_characters([passage.text])
        single_word = not re.search(r"\s", passage.text) and tokens <= MAX_WORD_CHARACTERS
        assert tokens <= size or single_word


@given(text=structured_texts, size=st.integers(2, 40), overlap=st.integers(1, 39))
@settings(max_examples=150, deadline=None)
def test_overlap_stays_within_its_size(text: str, size: int, overlap: int) -> None:
    overlap = min(overlap, size - 1)
    passages = Splitter(size, overlap, count_characters).split(Document("a", text, "a.md"))
    for passage, following in zip(passages, passages[1:], strict=False):
        shared = text[following.start : max(following.start, passage.end)]
        assert count_characters([shared])[0] <= overlap


def test_sentences_are_packed_up_to_the_size() -> None:
    text = "One two. Three four. Five six. Seven."
    assert texts_of(split(text, 4)) == ["One two. Three four.", "Five six. Seven."]
    assert texts_of(split(text, 7)) == [text]


def test_neighbours_share_whole_sentences() -> None:
    text = "One two. Three four. Five. Six seven. Eight."
    assert texts_of(split(text, 4, 1)) == [
        "One two. Three four.",  # its last sentence is larger than the overlap
        "Five. Six seven. Eight.",
    ]
    assert texts_of(split(text, 5, 3)) == [
        "One two. Three four. Five.",
        "Three four. Five. Six seven.",
        "Five. Six seven. Eight.",
    ]


def test_overlap_leaves_room_for_something_new() -> None:
    text = "A b. C d. E f g h."
    assert texts_of(split(text, 4, 3)) == ["A b. C d.", "E f g h."]


def test_a_passage_of_mostly_overlap_still_brings_something_new() -> None:
    text = "Ax. Bx. Cx.\n\nDx dx. Ex."
    assert texts_of(split(text, 4, 3)) == [
        "Ax. Bx. Cx.",
        "Bx. Cx.\n\nDx dx.",
        "Cx.\n\nDx dx. Ex.",
    ]


def test_a_passage_ends_with_a_paragraph_if_it_is_half_full() -> None:
    text = "One two three.\n\nFour five. Six seven."
    assert texts_of(split(text, 6)) == ["One two three.", "Four five. Six seven."]
    short = "One.\n\nFour five. Six seven. Eight."
    assert texts_of(split(short, 5)) == ["One.\n\nFour five. Six seven.", "Eight."]


def test_no_passage_crosses_a_heading() -> None:
    passages = split("# A\nOne.\n## B\nTwo.\n", 100, 50)
    assert [(p.text, p.heading) for p in passages] == [
        ("# A\nOne.", "A"),
        ("## B\nTwo.", "A > B"),
    ]


def test_headings_without_text_stay_with_the_text_below() -> None:
    (passage,) = split("# A\n\n## B\n\nText.", 100)
    assert (passage.text, passage.heading) == ("# A\n\n## B\n\nText.", "A > B")


def test_a_passage_before_any_heading_has_none() -> None:
    assert [p.heading for p in split("Text.\n\n# A\n\nMore.", 100)] == [None, "A"]


def test_later_passages_of_a_section_keep_its_heading() -> None:
    passages = split("# A\n\nOne two. Three four. Five six.", 4)
    assert [p.heading for p in passages] == ["A"] * 3


def test_fenced_code_that_fits_is_not_cut() -> None:
    code = "```\na. B c\n\nd. E f\n```"
    passages = split(f"Some words before it.\n\n{code}\n\nSome words after.", 8)
    assert code in texts_of(passages)


def test_fenced_code_that_does_not_fit_is_cut_at_lines() -> None:
    passages = split("```\na b c\n\n  d e f\ng\n```", 4)
    assert texts_of(passages) == ["```\na b c", "d e f\ng", "```"]


def test_indentation_of_code_is_kept() -> None:
    assert texts_of(split("  ```\n    x\n  ```", 9)) == ["  ```\n    x\n  ```"]


def test_a_long_sentence_is_cut_at_lines_then_words() -> None:
    assert texts_of(split("a b c\nd e f", 3)) == ["a b c", "d e f"]
    assert texts_of(split("a b c d e f g", 3)) == ["a b c", "d e f", "g"]


def test_chinese_is_cut_between_characters() -> None:
    document = Document("a", "一二三四五六七", "a.txt")
    passages = Splitter(3, 0, count_characters).split(document)
    assert texts_of(passages) == ["一二三", "四五六", "七"]


def test_a_very_long_word_counts_by_its_length() -> None:
    # Counted as one word it would make a single passage of 6400 characters.
    passages = split("x" * 100 * MAX_WORD_CHARACTERS, 10)
    assert [len(p.text) for p in passages] == [10 * MAX_WORD_CHARACTERS] * 10


def test_a_very_long_word_that_counts_one_token_is_measured_in_pieces() -> None:
    def count(texts: Sequence[str]) -> list[int]:
        lengths = [[len(word) for word in text.split()] for text in texts]
        return [sum(n if n <= MAX_WORD_CHARACTERS else 1 for n in found) for found in lengths]

    size = 2 * MAX_WORD_CHARACTERS
    document = Document("a", f"Data: {'x' * 20 * size} end.", "a.txt")
    assert max(len(p.text) for p in Splitter(size, 0, count).split(document)) <= size + 5


def test_text_that_counts_no_tokens_is_still_bounded() -> None:
    document = Document("a", "\u200b " * 6400, "a.txt")
    passages = Splitter(10, 0, count_nothing).split(document)
    assert max(len(p.text) for p in passages) <= 10 * MAX_WORD_CHARACTERS


def test_each_stretch_is_tokenised_a_bounded_number_of_times() -> None:
    counted = 0

    def count(texts: Sequence[str]) -> list[int]:
        nonlocal counted
        counted += sum(map(len, texts))
        return count_words(texts)

    text = "Some words make a sentence. " * 500
    Splitter(50, 49, count).split(Document("a", text, "a.txt"))
    assert counted <= len(text)


def test_source_code_is_cut_before_outer_definitions() -> None:
    code = "import a\n\n\ndef f():\n    x = 1\n\n    y = 2\n\n\ndef g():\n    z = 3\n\n    return z"
    passages = split(code, 12, source="a.py")
    assert [(p.text.split("\n")[0], p.heading) for p in passages] == [
        ("import a", None),
        ("def g():", "def g()"),
    ]
    # The first half of g would fit, too.
    assert texts_of(split(code, 15, source="a.py"))[1] == code[code.index("def g") :]
    # Where the outer border would leave less than half a passage, an inner one is taken.
    assert texts_of(split(code, 8, source="a.py"))[:2] == [
        "import a\n\n\ndef f():\n    x = 1",
        "    y = 2\n\n\ndef g():\n    z = 3",
    ]


def test_a_passage_of_code_keeps_its_indentation() -> None:
    passages = split("def f():\n\n    x = 1\n    y = 2", 6, source="a.py")
    assert texts_of(passages) == ["def f():", "    x = 1\n    y = 2"]


def test_rows_stay_whole_where_they_fit() -> None:
    document = Document("a", "a: One. Two.\nb: x\n\na: Three. Four.\nb: y", "a", syntax="rows")
    assert texts_of(Splitter(7, 0, count_words).split(document)) == [
        "a: One. Two.\nb: x",
        "a: Three. Four.\nb: y",
    ]
    long = Document("a", "a: One two. Three four. Five six.\nb: x", "a", syntax="rows")
    assert texts_of(Splitter(5, 0, count_words).split(long)) == [
        "a: One two. Three four.",
        "Five six.\nb: x",
    ]


def test_a_table_row_is_not_cut() -> None:
    table = "| A. B | C. D |\n| E. F | G. H |"
    assert texts_of(split(table, 9)) == ["| A. B | C. D |", "| E. F | G. H |"]


def test_passages_tell_their_page() -> None:
    document = Document("a", "One. Two.\n\nThree. Four.", "a.pdf", page_starts=(0, 11))
    passages = Splitter(3, 0, count_words).split(document)
    assert [(p.text, p.page, p.line) for p in passages] == [
        ("One. Two.", 1, None),
        ("Three. Four.", 2, None),
    ]
    (whole,) = Splitter(9, 0, count_words).split(document)
    assert whole.page == 1


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("source", ["a.md", "a.txt", "a.py", "memory"])
def test_passages_tell_their_line(line_end: str, source: str) -> None:
    text = line_end.join(["", "One.", "", "Two.", "Three.", "Four."])
    assert [(p.text, p.line) for p in split(text, 1, source=source)] == [
        ("One.", 2),
        ("Two.", 4),
        ("Three.", 5),
        ("Four.", 6),
    ]


@pytest.mark.parametrize(
    ("source", "syntax"),
    [("a.html", "markdown"), ("a.docx", "markdown"), ("a.csv", "rows"), ("a.jsonl", "plain")],
)
def test_a_text_made_of_another_has_no_lines(source: str, syntax: Syntax) -> None:
    document = Document("a", "One.\n\nTwo.", source, syntax=syntax)
    assert [p.line for p in Splitter(1, 0, count_words).split(document)] == [None, None]


@given(text=any_texts, size=st.integers(1, 20))
@settings(max_examples=100, deadline=None)
def test_lines_are_counted_as_an_editor_does(text: str, size: int) -> None:
    for passage in split(text, size, source="a.txt"):
        before = text[: passage.start].replace("\r\n", "\n").replace("\r", "\n")
        assert passage.line == before.count("\n") + 1


@pytest.mark.parametrize("text", ["", " \n\n "])
def test_blank_text_has_no_passages(text: str) -> None:
    assert split(text, 5) == []


@pytest.mark.parametrize(
    ("size", "overlap", "message"),
    [
        (0, 0, "chunk_size must be at least 1 token, got 0"),
        (10, 10, "chunk_overlap must be from 0 to 9 .*got 10"),
        (10, -1, "chunk_overlap must be from 0 to 9 .*got -1"),
    ],
)
def test_unusable_sizes_are_refused(size: int, overlap: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Splitter(size, overlap, count_words)
