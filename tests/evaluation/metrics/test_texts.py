"""Scores of short answers, held against their definitions."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.evaluation.metrics.texts import (
    chosen,
    contains,
    exact_match,
    last_number,
    normalise,
    token_f1,
    tokens,
)
from tests.oracles import metric_squad as oracle

LAWS = settings(deadline=None, max_examples=150)
_WORDS = st.sampled_from(
    ["the", "a", "an", "The", "AN", "Paris", "paris", "x", "y", "Café", "don't", "U.S.", "20–18"]
    + ["1,234", "the-a", "“quoted”", "theory", "a.", "ÉTÉ", "ﬁ", "€5", "a_b", "²", "…", "the$"]
)
_GAPS = st.sampled_from([" ", " ", "  ", "", "\t", "\n", "\u00a0", ", ", "-", "\u3000"])
WESTERN = st.lists(st.tuples(_WORDS, _GAPS), max_size=7).map(
    lambda parts: "".join(word + gap for word, gap in parts)
) | st.text(max_size=12).filter(lambda text: not _has_han(text))
CHINESE = st.text(alphabet="北京大学的xy12 。，（）·%", max_size=12)


def _has_han(text: str) -> bool:
    return any("\u3400" <= sign <= "\u9fff" for sign in text)


@LAWS
@given(WESTERN)
def test_normalising_is_squads(text: str) -> None:
    assert normalise(text) == " ".join(oracle.squad_tokens(text))


@LAWS
@given(CHINESE)
def test_chinese_is_segmented_by_character(text: str) -> None:
    assert tokens(text) == oracle.chinese_tokens(text)


@LAWS
@given(WESTERN, st.lists(WESTERN, max_size=3), st.booleans())
def test_scores_are_those_of_the_definition(response: str, answers: list[str], near: bool) -> None:
    if near:  # or else hardly anything fits
        answers = [*answers, f"The {response.upper()}!"]
    said = oracle.squad_tokens(response)
    right = [oracle.squad_tokens(answer) for answer in answers]
    assert exact_match(response, answers) == float(said in right)
    best = max((oracle.f1(said, answer) for answer in right), default=0)
    assert token_f1(response, answers) == pytest.approx(float(best))
    held = any(oracle.stands_in(answer, said) for answer in right)
    assert contains(response, answers) == float(held)


@LAWS
@given(CHINESE, CHINESE)
def test_chinese_scores_are_those_of_the_definition(response: str, answer: str) -> None:
    said, right = oracle.chinese_tokens(response), oracle.chinese_tokens(answer)
    assert exact_match(response, [answer]) == float(said == right)
    assert token_f1(response, [answer]) == pytest.approx(float(oracle.f1(said, right)))
    assert contains(response, [answer]) == float(oracle.stands_in(right, said))


@LAWS
@given(WESTERN | CHINESE, WESTERN | CHINESE)
def test_scores_agree_with_each_other(response: str, answer: str) -> None:
    exact, f1, held = (score(response, [answer]) for score in (exact_match, token_f1, contains))
    assert exact <= f1
    assert held >= exact or not tokens(answer)
    assert normalise(normalise(response)).count("  ") == 0
    assert token_f1(answer, [response]) == f1


@pytest.mark.parametrize(
    ("response", "answer", "expected"),
    [
        ("It was Paris, France.", "Paris", 1),
        ("Parisian life", "Paris", 0),  # whole tokens
        ("the United Kingdom of old", "united kingdom", 1),
        ("Kingdom United", "United Kingdom", 0),
        ("in 20–18 games", "20-18", 1),
        ("他出生在北京市。", "北京", 1),
        ("北方的京城", "北京", 0),
        ("anything", "The!", 0),  # an answer of nothing never counts
        ("", "Paris", 0),
    ],
)
def test_an_answer_stands_in_a_sentence(response: str, answer: str, expected: int) -> None:
    assert contains(response, [answer]) == expected


def test_a_letter_beside_han_is_no_article() -> None:
    assert tokens("维生素 A") == tokens("维生素A") == ["维", "生", "素", "a"]
    assert tokens("A 股") == ["a", "股"]
    assert tokens("A dog") == ["dog"]


def test_without_answers_nothing_fits() -> None:
    assert exact_match("x", []) == token_f1("x", []) == contains("x", []) == 0


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("Yes, it does.", "yes"),
        ("**No**", "no"),
        ("The answer is: Maybe", "maybe"),
        ("no. yes", "no"),
        ("Nothing is known yesterday", None),
        ("", None),
    ],
)
def test_the_first_choice_named_is_chosen(response: str, expected: str | None) -> None:
    assert chosen(response, ["yes", "no", "maybe"]) == expected


def test_choices_may_be_letters_or_begin_alike() -> None:
    assert chosen("A", ["A", "B"]) == "A"
    assert chosen("Answer: (b).", ["A", "B"]) == "B"
    assert chosen("in New York", ["New", "New York"]) == "New York"
    assert chosen("dog", ["the dog", "the cat"]) == "the dog"
    assert chosen("anything", []) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("She has 18 eggs.", "18"),
        ("1,234", "1234"),
        ("= $1,234,567.50.", "1234567.5"),
        ("It is $1,000.", "1000"),
        ("about 5%", "5"),
        ("3.0", "3"),
        (".5", "0.5"),
        ("-5", "-5"),
        ("−5 degrees", "-5"),
        ("-$5", "-5"),
        ("$-5", "-5"),
        ("x = -2.5", "-2.5"),
        ("10-3", "3"),
        ("2010-2015", "2015"),
        ("5 - 3 = 2", "2"),
        ("#### 42", "42"),
        (r"\boxed{7}", "7"),
        ("first 1, then 2", "2"),
        ("1,2", "2"),
        ("1,2345", "2345"),
        ("none at all", None),
        ("", None),
    ],
)
def test_the_last_number(text: str, expected: str | None) -> None:
    assert last_number(text) == (None if expected is None else Decimal(expected))


@LAWS
@given(st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**9)))
def test_any_number_is_read_back_from_a_sentence(number: Decimal) -> None:
    # A minus stands before the currency or behind it.
    for written in (f"{number:,.2f}", f"{number:.2f}", f"${number:,.2f}"):
        assert last_number(f"First 17, and so it is {written}.") == number
    whole = int(number)
    assert last_number(f"so {whole:,}.") == whole


@LAWS
@given(st.text(max_size=30))
def test_any_text_may_be_searched_for_a_number(text: str) -> None:
    found = last_number(text)
    assert found is None or found.is_finite()
