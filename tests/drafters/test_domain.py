from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.drafters.domain import CODE, MATH, TEXT, DomainTracker, recognise


class Letters:
    """A vocabulary of letters; counts what it was asked to read."""

    def __init__(self) -> None:
        self.num_read = 0

    def decode(self, token_ids: Sequence[int]) -> str:
        self.num_read += len(token_ids)
        return "".join(map(chr, token_ids))


def spelled(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def tracked(prompt: str, *answers: str) -> DomainTracker:
    tracker = DomainTracker(Letters(), spelled(prompt))
    for answer in answers:
        tracker.observe(spelled(answer))
    return tracker


CODE_TEXTS = [
    "Write a Python function that returns the longest word of a list.",
    "Implement binary search in C++ and explain its running time.",
    "def area(width: float, height: float) -> float:\n    return width * height\n",
    "for (let i = 0; i < items.length; i++) {\n  total += items[i].price;\n}\n",
    "SELECT name FROM users WHERE age > 30; -- what does this SQL query return?",
    "```bash\nls -l | sort\n```",
]
MATH_TEXTS = [
    "A baker sells 12 loaves at $3 each and 7 cakes at $15 each. How much does she earn?",
    "Solve the equation 3x + 7 = 22 for x.",
    "The integral is $\\frac{1}{2} x^2 + c$, so $\\int x \\, dx$ grows without limit.",
    "12 x 3 = 36, and 36 + 105 = 141. So she earns $141 in total.",
    "What is the probability of two sixes with two dice?  1/6 * 1/6 = 1/36",
]
PLAIN_TEXTS = [
    "",
    "Who wrote the first novel that was printed in Iceland?",
    "Write a short letter to a friend who has moved to another town.",
    "The treaty was signed in 1648 and ended a war of 30 years.",
    "Translate into French: the weather was fine, and we walked along the river.",
    "He has a class in the morning and a meeting in the afternoon.",
]


@pytest.mark.parametrize("text", CODE_TEXTS)
def test_code_and_requests_for_it_are_recognised(text: str) -> None:
    assert recognise(text) == CODE


@pytest.mark.parametrize("text", MATH_TEXTS)
def test_mathematics_is_recognised(text: str) -> None:
    assert recognise(text) == MATH


@pytest.mark.parametrize("text", PLAIN_TEXTS)
def test_anything_else_is_text(text: str) -> None:
    assert recognise(text) == TEXT


def test_a_program_about_numbers_is_code() -> None:
    assert (
        recognise("def half(x):\n    # how many: 10 / 2 = 5, 3 + 4 = 7\n    return x / 2\n") == CODE
    )


def test_a_long_text_with_some_numbers_is_not_mathematics() -> None:
    sentence = "The town had many fine houses then, and people came to see them from far away. "

    assert recognise(sentence * 9 + "In 1851 it had 4,200 people, half of them farmers.") == TEXT


PROSE = "Here is a small story about a fox who lived near the old mill by the lake. "
LOOP = "for item in items:\n    total += item.price\n    print(total)\n"
SUMS = "12 + 30 = 42 and 42 * 2 = 84, so 84 - 4 = 80. "


@pytest.mark.parametrize("prompt", [CODE_TEXTS[0], MATH_TEXTS[0], PLAIN_TEXTS[1]])
def test_before_an_answer_the_prompt_decides(prompt: str) -> None:
    assert tracked(prompt).domain == recognise(prompt)


@pytest.mark.parametrize(
    ("prompt", "answer", "domain"),
    [
        (CODE_TEXTS[0], PROSE * 3, TEXT),
        (MATH_TEXTS[0], PROSE * 3, TEXT),
        (PLAIN_TEXTS[1], LOOP * 3, CODE),
        (PLAIN_TEXTS[1], SUMS * 3, MATH),
        (CODE_TEXTS[0], SUMS * 4, MATH),
    ],
)
def test_the_answer_outweighs_the_prompt_as_it_grows(prompt: str, answer: str, domain: str) -> None:
    tracker = tracked(prompt)
    assert tracker.domain == recognise(prompt) != domain

    tracker.observe(spelled(answer))
    assert tracker.domain == domain


def test_a_block_of_code_is_code_until_it_ends() -> None:
    tracker = tracked(PLAIN_TEXTS[1], PROSE)
    assert tracker.domain == TEXT

    tracker.observe(spelled("\n```\n" + "plain words in the block " * 2))
    assert tracker.domain == CODE

    tracker.observe(spelled("\n```\n" + PROSE * 2))
    assert tracker.domain == TEXT

    tracker.observe(spelled("```python\n" + PROSE))
    assert tracker.domain == CODE


def test_what_stands_before_the_end_of_a_block_is_forgotten_with_it() -> None:
    tracker = tracked(PLAIN_TEXTS[1], "```\n", LOOP * 5, "```\nThat is all of it, I think. ")

    assert tracker.domain == TEXT


def test_without_a_decoder_everything_is_text() -> None:
    tracker = DomainTracker(None, spelled(CODE_TEXTS[0]))
    tracker.observe(spelled(LOOP))

    assert tracker.domain == TEXT


def test_only_the_end_of_a_prompt_is_read_and_only_once() -> None:
    letters = Letters()
    tracker = DomainTracker(letters, spelled(PROSE * 90))
    for _ in range(15):
        tracker.observe([ord("a")])
        assert tracker.domain == TEXT
    assert letters.num_read == 200

    tracker.observe([ord("a")])
    assert (tracker.domain, tracker.domain, letters.num_read) == (TEXT, TEXT, 216)


def test_nothing_is_read_before_somebody_asks() -> None:
    letters = Letters()
    DomainTracker(letters, spelled(PROSE)).observe(spelled(PROSE))

    assert letters.num_read == 0


@given(
    pieces=st.lists(st.sampled_from([PROSE, LOOP, SUMS, "```", "a"]), max_size=8),
    asked=st.lists(st.booleans(), min_size=8, max_size=8),
)
@settings(max_examples=60, deadline=None)
def test_the_domain_does_not_depend_on_when_it_was_asked_for(
    pieces: list[str], asked: list[bool]
) -> None:
    often, once = tracked(MATH_TEXTS[0]), tracked(MATH_TEXTS[0])
    for piece, ask in zip(pieces, asked, strict=False):
        for tracker in (often, once):
            tracker.observe(spelled(piece))
        if ask:
            assert often.domain

    assert often.domain == once.domain
