from __future__ import annotations

import random
from collections.abc import Iterable
from typing import SupportsIndex, overload

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.drafters.automaton import ROOT_STATE, SuffixAutomaton

Tokens = tuple[int, ...]
several_texts = st.lists(
    st.lists(st.integers(0, 2), max_size=14).map(tuple), min_size=1, max_size=3
)


def build(texts: Iterable[Tokens], automaton: SuffixAutomaton | None = None) -> SuffixAutomaton:
    automaton = automaton or SuffixAutomaton()
    for text in texts:
        automaton.start_text()
        for token in text:
            automaton.append(token)
    return automaton


def state_of(automaton: SuffixAutomaton, string: Tokens) -> int | None:
    state: int | None = ROOT_STATE
    for token in string:
        state = None if state is None else automaton.transitions[state].get(token)
    return state


def occurrences(texts: Iterable[Tokens], string: Tokens) -> int:
    size = len(string)
    return sum(
        text[start : start + size] == string
        for text in texts
        for start in range(len(text) - size + 1)
    )


def substrings(texts: Iterable[Tokens]) -> set[Tokens]:
    return {
        text[start:end]
        for text in texts
        for start in range(len(text))
        for end in range(start + 1, len(text) + 1)
    }


@given(texts=several_texts)
@settings(max_examples=60, deadline=None)
def test_it_holds_each_substring_with_its_count_and_no_other(texts: list[Tokens]) -> None:
    automaton = build(texts)
    held = substrings(texts)

    for string in held:
        state = state_of(automaton, string)
        assert state is not None
        assert automaton.counts[state] == occurrences(texts, string)
    for string in {(), *held}:
        for token in range(3):
            assert (state_of(automaton, (*string, token)) is None) == ((*string, token) not in held)


@given(texts=several_texts)
@settings(max_examples=60, deadline=None)
def test_the_longest_continued_ending_is_the_one_found_by_force(texts: list[Tokens]) -> None:
    automaton = build(texts)
    running, held = texts[-1], substrings(texts)
    continued = {string[:-1] for string in held}
    expected = next(
        (running[start:] for start in range(len(running)) if running[start:] in continued), ()
    )

    assert automaton.tip == state_of(automaton, running)
    assert automaton.lengths[automaton.tip] == len(running)
    assert automaton.longest_continued(automaton.tip, len(running)) == (
        state_of(automaton, expected),
        len(expected),
    )


@given(texts=several_texts, ahead=st.lists(st.integers(0, 3), max_size=6).map(tuple))
@settings(max_examples=100, deadline=None)
def test_advancing_keeps_the_longest_ending_that_the_texts_contain(
    texts: list[Tokens], ahead: Tokens
) -> None:
    automaton = build(texts)
    assumed, held = (*texts[-1], *ahead), {(), *substrings(texts)}
    expected = next(assumed[start:] for start in range(len(assumed) + 1) if assumed[start:] in held)
    state, length = automaton.tip, automaton.lengths[automaton.tip]
    for token in ahead:
        state, length = automaton.advanced(state, length, token)

    assert (state, length) == (state_of(automaton, expected), len(expected))
    assert automaton.counts == build(texts).counts


@given(texts=several_texts)
@settings(max_examples=60, deadline=None)
def test_it_has_fewer_than_two_states_a_token(texts: list[Tokens]) -> None:
    assert len(build(texts)) <= max(1, 2 * sum(map(len, texts)))


class CountingList(list[int]):
    """Counts how often an item is read: each step along a suffix link is one read."""

    reads = 0

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> int | list[int]:
        self.reads += 1
        return super().__getitem__(index)


def steps_a_token(texts: list[Tokens]) -> float:
    automaton = SuffixAutomaton()
    automaton.links = counting = CountingList(automaton.links)
    build(texts, automaton)
    return counting.reads / sum(map(len, texts))


ALTERNATING = tuple(place % 2 for place in range(3000))
RANDOM_BITS = tuple(random.Random(0).choices(range(2), k=3000))


@pytest.mark.parametrize(
    "texts",
    [[(0,) * 3000], [ALTERNATING], [RANDOM_BITS], [(0,) * 1000] * 3, [RANDOM_BITS[:1000]] * 3],
    ids=["one token", "two tokens", "random bits", "texts of one token", "equal texts"],
)
def test_the_steps_a_token_do_not_grow_with_the_text(texts: list[Tokens]) -> None:
    # At most 64 for the counts and, amortised, a handful for the automaton itself.
    assert steps_a_token(texts) < 70


def test_beyond_the_limit_counts_lag_for_the_shortest_strings_only() -> None:
    automaton = build([(0,) * 100])
    counts = [automaton.counts[state] for state in range(1, 101)]

    assert counts[40:] == list(range(60, 0, -1))
    assert counts[:36] == [64] * 36
