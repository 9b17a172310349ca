"""Quotes that stand in the document, and an order that follows from the text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specrag.rag.citations import Citation, cite
from specrag.retrieval.document import Document, Passage, ScoredPassage

WORDS = [
    "draft",
    "tree",
    "the",
    "gate.",
    "BM25",
    "a_b",
    "e.g.",
    "草稿",
    "模型。",
    "🚀",
    "no!",
    "\n",
    "- x",
]
sentences = st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join)
texts = st.one_of(sentences, st.text(max_size=60))


@st.composite
def found_passages(draw: st.DrawFn) -> tuple[dict[str, Document], list[ScoredPassage]]:
    documents = {
        name: Document(name, draw(texts), f"/{name}")
        for name in draw(st.lists(st.sampled_from("abc"), min_size=1, unique=True))
    }
    found: list[ScoredPassage] = []
    for number in range(draw(st.integers(0, 5))):
        document = documents[draw(st.sampled_from(sorted(documents)))]
        borders = st.integers(0, len(document.text))
        start, end = sorted((draw(borders), draw(borders)))
        passage = Passage(number, document.id, document.text[start:end], start, end)
        found.append(ScoredPassage(passage, draw(st.floats(-1, 1))))
    found.sort(key=lambda entry: -entry.score)
    return documents, found


@given(case=found_passages(), question=texts, answer=texts)
def test_a_quote_is_what_stands_in_the_document(
    case: tuple[dict[str, Document], list[ScoredPassage]], question: str, answer: str
) -> None:
    documents, found = case
    cited = cite(question, answer, found)
    by_id = {entry.passage.id: entry for entry in found}

    assert cited == cite(question, answer, found)
    assert [citation.n for citation in cited] == list(range(1, len(cited) + 1))
    assert bool(cited) is bool(found)
    for citation in cited:
        source = by_id[citation.passage]
        text = documents[citation.document].text
        assert citation.quote == text[citation.start : citation.end]
        assert citation.document == source.passage.document
        assert source.passage.start <= citation.start <= citation.end <= source.passage.end
        assert citation.score == round(source.score, 4)
    places = [(citation.document, citation.start, citation.end) for citation in cited]
    assert len(places) == len(set(places))


def passage(number: int, text: str, *, start: int = 0, document: str = "") -> ScoredPassage:
    name = document or f"{number}.md"
    found = Passage(number, name, text, start, start + len(text), page=number + 1, line=5)
    return ScoredPassage(found, 0.9 - number / 10)


BREAD = passage(0, "Bread is old. Bake the bread for forty minutes. Serve it warm.")
SHIPS = passage(1, "The ship left the harbour at dawn. It carried grain.")
OVENS = passage(2, "An oven is hot. Bake most loaves for forty minutes or so.")


def numbers(cited: tuple[Citation, ...]) -> list[int]:
    return [citation.passage for citation in cited]


def test_the_sentence_that_shows_the_answer_is_quoted() -> None:
    (citation,) = cite("How long must bread bake?", "Forty minutes.", [BREAD])
    assert citation.quote == "Bake the bread for forty minutes."
    assert (citation.start, citation.end) == (14, 47)
    assert citation.to_dict() == {
        "n": 1,
        "document": "0.md",
        "passage": 0,
        "page": 1,
        "line": 5,
        "start": 14,
        "end": 47,
        "score": 0.9,
        "quote": "Bake the bread for forty minutes.",
    }


def test_a_quote_has_the_line_on_which_it_begins() -> None:
    text = "# Bread\n\nBread is old.\nBake the bread for forty minutes."
    found = Passage(0, "a", text, 0, len(text), line=10)
    (citation,) = cite("How long must bread bake?", "Forty minutes.", [ScoredPassage(found, 0.9)])
    assert citation.quote == "Bake the bread for forty minutes."
    assert citation.line == 13
    unlined = Passage(0, "a", text, 0, len(text))
    assert cite("x", "Forty minutes.", [ScoredPassage(unlined, 0.9)])[0].line is None


def test_the_best_supported_comes_first() -> None:
    answer = "The ship carried grain from the harbour."
    assert numbers(cite("What did it carry?", answer, [BREAD, SHIPS]))[0] == 1
    assert numbers(cite("What did it carry?", answer, [SHIPS, BREAD]))[0] == 1


def test_several_passages_that_say_the_same_are_cited() -> None:
    cited = cite("How long?", "Bake it for forty minutes.", [BREAD, SHIPS, OVENS])
    assert numbers(cited) == [0, 2]


def test_the_best_passage_is_cited_even_if_the_answer_says_nothing_of_it() -> None:
    for answer in ("", "...", "Zebras gallop.", "the of and"):
        assert numbers(cite("How long?", answer, [BREAD, SHIPS])) == [0]


def test_no_passages_give_no_citations() -> None:
    assert cite("How long?", "Forty minutes.", []) == ()


def test_common_words_are_no_support() -> None:
    cited = cite("Who?", "It is the dawn of what was not.", [BREAD, SHIPS])
    assert numbers(cited)[0] == 1  # for its dawn alone


def test_chinese_is_cited_by_the_sentence() -> None:
    gate = passage(0, "门先看信号。然后它决定要不要检索。")
    drafts = passage(1, "草稿模型先猜词。目标模型再验证。")
    citation, *_ = cite("谁来验证？", "由目标模型验证", [gate, drafts])
    assert citation.passage == 1
    assert citation.quote == "目标模型再验证。"


def test_latin_words_within_chinese_count() -> None:
    other = passage(0, "向量存在磁盘上。")
    faiss = passage(1, "检索用FAISS完成。词频用BM25统计。")
    citation, *_ = cite("Which library?", "It is FAISS.", [other, faiss])
    assert (citation.passage, citation.quote) == (1, "检索用FAISS完成。")


def test_a_sentence_shared_by_overlapping_passages_is_cited_once() -> None:
    text = "Bread is old. Bake the bread for forty minutes. Serve it warm."
    first = passage(0, text[:47], document="bread.md")
    second = passage(1, text[14:], start=14, document="bread.md")
    cited = cite("How long?", "Bake the bread for forty minutes.", [first, second])
    assert numbers(cited) == [0]
    assert cited[0].quote == "Bake the bread for forty minutes."


def test_the_same_text_in_two_documents_is_cited_for_both() -> None:
    copies = [passage(0, "Bake for forty minutes."), passage(1, "Bake for forty minutes.")]
    cited = cite("How long?", "Forty minutes.", copies)
    assert [(citation.n, citation.document) for citation in cited] == [(1, "0.md"), (2, "1.md")]


def test_a_passage_of_blanks_is_quoted_whole() -> None:
    (citation,) = cite("How long?", "Forty minutes.", [passage(0, " \n ")])
    assert (citation.start, citation.end, citation.quote) == (0, 3, " \n ")
