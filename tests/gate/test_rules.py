"""Greetings are answered without a lookup; whatever asks something is left to the signals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specrag.gate.rules import rule_for

GREETINGS = [
    "Hello!",
    "hi",
    "Hi there",
    "HEY",
    "  hello  again ",
    "Hello, everyone!",
    "Good morning.",
    "thanks a lot",
    "Thank you very much!",
    "Thanks so much!",
    "ok",
    "Bye",
    "See you!",
    "你好",
    "你好！",
    "谢谢。",
    "再见",
]
QUESTIONS = [
    "hi, what is a bonus token?",
    "Hello, how do I build an index?",
    "what is hello",
    "thanks, and which port does the server use?",
    "ok so what now",
    "high",
    "this",
    "hithere",
    "Good morning Vietnam was filmed where?",
    "你好，什么是草稿模型？",
    "what time is it?",
    "?",
    "...",
    "",
]


@pytest.mark.parametrize("text", GREETINGS)
def test_a_greeting_needs_no_documents(text: str) -> None:
    gate = rule_for(text)
    assert gate is not None
    decision = gate.decide(None)
    assert not decision.retrieve
    assert decision.zone == "fixed"
    assert "greeting" in decision.reason.lower()


@pytest.mark.parametrize("text", QUESTIONS)
def test_anything_else_is_no_greeting(text: str) -> None:
    assert rule_for(text) is None


@given(st.sampled_from(GREETINGS), st.text("?!., \n。！", max_size=4))
def test_marks_and_blanks_do_not_count(greeting: str, marks: str) -> None:
    assert rule_for(f"{marks}{greeting}{marks}") is not None


@given(st.sampled_from(GREETINGS), st.from_regex(r"[bdfgj][a-z]{6}", fullmatch=True))
def test_a_greeting_with_a_further_word_is_none(greeting: str, word: str) -> None:
    assert rule_for(f"{greeting} {word}") is None
