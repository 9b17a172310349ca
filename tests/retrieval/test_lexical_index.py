from __future__ import annotations

import random
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.errors import IndexFormatError, InputError
from specrag.retrieval import lexical_index, postings
from specrag.retrieval.lexical_index import LexicalIndex, bm25_search
from specrag.retrieval.postings import PostingsWriter
from specrag.retrieval.terms import content_words, query_terms, search_terms
from tests.oracles.bm25 import bm25

TEXTS = {
    2: "The gate decides whether documents are needed.",
    3: "A draft tree merges the proposals of several drafters; draft_tree is its name.",
    7: "草稿模型先猜词。目标模型再验证。",
    11: "",
    40: "The gate reads the entropy of the draft, and the gate again.",
    2**40: "What the gate is: torch.nn.Module",
}
Passages = dict[int, str]
Open = Callable[[Passages], LexicalIndex]


@pytest.fixture
def opened(tmp_path: Path) -> LexicalIndex:
    LexicalIndex.write(tmp_path / "terms.sqlite", TEXTS.items())
    return LexicalIndex.open(tmp_path / "terms.sqlite")


def ids(hits: Sequence[tuple[float, int]]) -> list[int]:
    return [number for _, number in hits]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("gate", [40, 2, 2**40]),
        ("GATES?", [40, 2, 2**40]),
        ("draft", [3, 40]),
        ("DraftTree draft_tree", [3, 40]),
        ("nn", [2**40]),
        ("torch.nn.Module", [2**40]),
        ("模型", [7]),
        ("词", [7]),
        ("the", [40, 2, 2**40, 3]),
        ("zebra", []),
        ("?", []),
        ("", []),
    ],
)
def test_passages_are_found_by_their_words(
    opened: LexicalIndex, query: str, expected: list[int]
) -> None:
    hits = bm25_search([opened], query, 10)
    assert ids(hits) == expected
    assert all(score > 0 for score, _ in hits)


def test_an_index_tells_its_sizes(opened: LexicalIndex) -> None:
    assert opened.num_passages == 6
    assert opened.num_words == sum(search_terms(text).total() for text in TEXTS.values())


def test_passages_with_a_content_word_are_counted_as_the_gate_reads_them(
    opened: LexicalIndex,
) -> None:
    counts = Counter(word for text in TEXTS.values() for word in content_words(text))
    assert opened.passages_with([*counts, "zebra", "the", "tree", "nn"]) == {**counts}
    assert opened.passages_with([]) == {}
    # A common word, and a part of a compound, are search terms alone.
    assert opened.passages_with(["the", "nn"]) == {}
    assert opened.passages_with(["模", "型", "模型"]) == {"模": 1, "型": 1}


def test_many_words_are_asked_for_in_parts(tmp_path: Path) -> None:
    words = [f"w{number}x" for number in range(2500)]
    LexicalIndex.write(tmp_path / "terms.sqlite", [(1, " ".join(words)), (2, words[-1])])
    with LexicalIndex.open(tmp_path / "terms.sqlite") as index:
        assert index.passages_with(words) == dict.fromkeys(words[:-1], 1) | {words[-1]: 2}
        assert ids(bm25_search([index], " ".join(words), 2)) == [1, 2]


def test_equal_scores_come_in_the_order_of_ids(tmp_path: Path) -> None:
    LexicalIndex.write(tmp_path / "a", [(number, "one gate") for number in range(0, 40, 2)])
    LexicalIndex.write(tmp_path / "b", [(number, "one gate") for number in range(1, 40, 2)])
    with LexicalIndex.open(tmp_path / "a") as first, LexicalIndex.open(tmp_path / "b") as second:
        assert ids(bm25_search([second, first], "gate", 15)) == list(range(15))
        assert ids(bm25_search([first, second], "gate", 100)) == list(range(40))


@pytest.mark.parametrize(
    ("allowed", "excluded", "expected"),
    [
        (None, None, [40, 2, 2**40]),
        ([2, 3, 11], None, [2]),
        ([], None, []),
        (None, [40], [2, 2**40]),
        ([40, 2], [40], [2]),
        ([2**40, 40, 41, -5], [5], [40, 2**40]),
        (None, list(TEXTS), []),
    ],
)
def test_only_what_is_selected_is_found(
    opened: LexicalIndex,
    allowed: list[int] | None,
    excluded: list[int] | None,
    expected: list[int],
) -> None:
    masks = [
        None if part is None else np.array(part, dtype=np.int64) for part in (allowed, excluded)
    ]
    assert ids(bm25_search([opened], "gate", 10, [masks[0]], [masks[1]])) == expected


def test_a_selection_changes_no_score(opened: LexicalIndex) -> None:
    everything = bm25_search([opened], "the gate of the draft", 10)
    chosen = np.array([40, 3], dtype=np.int64)
    some = bm25_search([opened], "the gate of the draft", 10, [chosen])
    assert some == [hit for hit in everything if hit[1] in (40, 3)]


def test_there_may_be_no_passages(tmp_path: Path) -> None:
    LexicalIndex.write(tmp_path / "empty", [])
    LexicalIndex.write(tmp_path / "blank", [(5, ""), (6, "?")])
    with LexicalIndex.open(tmp_path / "empty") as empty, LexicalIndex.open(tmp_path / "blank") as b:
        assert (empty.num_passages, b.num_passages, b.num_words) == (0, 2, 0)
        assert bm25_search([empty, b], "gate", 3, [None, np.array([5])]) == []
        assert bm25_search([], "gate", 3) == []
        assert len(empty.passages.ids) == len(empty.passages.lengths) == 0
        assert empty.passages_with(["gate"]) == {}


def test_an_unusable_k_is_refused(opened: LexicalIndex) -> None:
    with pytest.raises(InputError, match="k must be at least 1, got 0"):
        bm25_search([opened], "gate", 0)


_WORDS = st.sampled_from(
    ["gate", "Gates", "draft_tree", "tree", "the", "of", "草稿", "稿", "a.b", "b", "x", "1,000"]
)
_TEXT = st.lists(_WORDS, max_size=8).map(" ".join)


@given(st.lists(_TEXT, max_size=12), _TEXT, st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=60)
def test_scores_are_those_of_the_definition_whatever_the_segments(
    texts: list[str], query: str, draw: random.Random
) -> None:
    passages = {3 * number: text for number, text in enumerate(texts)}
    parts: list[Passages] = [{}, {}, {}]
    for number, text in passages.items():
        draw.choice(parts)[number] = text
    whole, split = search([passages], query), search(parts, query)
    assert split == whole  # to the last bit
    terms = {number: list(search_terms(text).elements()) for number, text in passages.items()}
    expected = bm25(terms, list(query_terms(query).elements()))
    assert {number: score for score, number in whole} == pytest.approx(expected, rel=1e-12)
    assert whole == sorted(whole, key=lambda hit: (-hit[0], hit[1]))
    assert search(parts, query, k=3) == whole[:3]


def search(parts: Sequence[Passages], query: str, k: int = 1000) -> list[tuple[float, int]]:
    with TemporaryDirectory() as folder, ExitStack() as stack:
        indexes = []
        for number, part in enumerate(parts):
            path = Path(folder) / str(number)
            LexicalIndex.write(path, part.items())
            indexes.append(stack.enter_context(LexicalIndex.open(path)))
        return bm25_search(indexes, query, k)


def test_little_memory_gives_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(0)
    words = [f"w{number}" for number in range(200)]
    texts = [(number, " ".join(draw.choices(words, k=30))) for number in range(100)]
    LexicalIndex.write(tmp_path / "a", texts)
    monkeypatch.setattr(lexical_index, "PostingsWriter", lambda: PostingsWriter(held_bytes=5000))
    LexicalIndex.write(tmp_path / "b", texts)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_nothing_is_written_but_the_file(tmp_path: Path) -> None:
    LexicalIndex.write(tmp_path / "terms.sqlite", TEXTS.items())
    before = (tmp_path / "terms.sqlite").read_bytes()
    with LexicalIndex.open(tmp_path / "terms.sqlite") as index:
        bm25_search([index], "gate", 3)
    assert [path.name for path in tmp_path.iterdir()] == ["terms.sqlite"]
    assert (tmp_path / "terms.sqlite").read_bytes() == before


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "terms.sqlite").write_text("mine")
    with pytest.raises(InputError, match="the file exists already"):
        LexicalIndex.write(tmp_path / "terms.sqlite", TEXTS.items())
    assert (tmp_path / "terms.sqlite").read_text() == "mine"
    with pytest.raises(InputError, match="cannot write terms"):
        LexicalIndex.write(tmp_path / "missing" / "terms.sqlite", TEXTS.items())


def damage_header(data: bytearray) -> None:
    data[:16] = b"not a database.."


def cut(data: bytearray) -> None:
    del data[len(data) // 2 :]


def empty(data: bytearray) -> None:
    data.clear()


@pytest.mark.parametrize("damage", [damage_header, cut, empty])
def test_a_damaged_file_is_reported(tmp_path: Path, damage: Callable[[bytearray], None]) -> None:
    path = tmp_path / "terms.sqlite"
    LexicalIndex.write(path, TEXTS.items())
    data = bytearray(path.read_bytes())
    damage(data)
    path.write_bytes(data)
    with pytest.raises(IndexFormatError, match=r"terms\.sqlite"):  # noqa: SIM117
        with LexicalIndex.open(path) as index:
            bm25_search([index], " ".join(TEXTS.values()), 3)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM passages",
        "UPDATE passages SET ids = x'00'",
        "UPDATE passages SET lengths = x'00000000'",
        "UPDATE terms SET postings = x'0101'",
        "UPDATE terms SET postings = x'01010001020304'",
        "UPDATE terms SET postings = x'0101ff01'",
        "DROP TABLE terms",
        "PRAGMA user_version = 99",
    ],
)
def test_contents_that_cannot_be_are_reported(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "terms.sqlite"
    LexicalIndex.write(path, TEXTS.items())
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()
    with pytest.raises(IndexFormatError, match=r"terms\.sqlite"):  # noqa: SIM117
        with LexicalIndex.open(path) as index:
            bm25_search([index], "gate", 3)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(IndexFormatError, match=r"terms\.sqlite"):
        LexicalIndex.open(tmp_path / "terms.sqlite")


def test_several_threads_may_search(opened: LexicalIndex) -> None:
    queries = ["gate", "draft tree", "模型", "the"] * 5
    expected = [bm25_search([opened], query, 3) for query in queries]
    results: dict[int, list[list[tuple[float, int]]]] = {}

    def run(number: int) -> None:
        results[number] = [bm25_search([opened], query, 3) for query in queries]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[number] for number in range(4)] == [expected] * 4


def test_passages_out_of_order_are_a_fault_of_the_caller(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="in the order of their ids"):
        LexicalIndex.write(tmp_path / "terms.sqlite", [(2, "a"), (1, "b")])


def test_memory_is_bounded_by_default() -> None:
    assert postings._HELD_BYTES == 256 << 20
