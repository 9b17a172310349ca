from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.drafters.stores.arrays import MAX_MATCH, DatastoreArrays
from specrag.drafters.stores.token_datastore import NO_MATCH, Match, TokenDatastore
from specrag.errors import InputError

Tokens = tuple[int, ...]
VOCABULARY = 4
texts = st.lists(st.integers(0, 2), max_size=20).map(tuple)
corpora = st.lists(texts, max_size=4).filter(lambda found: any(len(text) > 1 for text in found))
queries = st.lists(st.integers(0, 3), max_size=12).map(tuple)


@st.composite
def lookups(draw: st.DrawFn) -> tuple[list[Tokens], Tokens]:
    """Draws texts, and a text that ends as a part of one of them often does."""
    corpus = draw(corpora)
    source = draw(st.sampled_from(corpus))
    end = draw(st.integers(0, len(source)))
    known = source[draw(st.integers(0, end)) : end]
    return corpus, (*draw(queries), *known)


def store(corpus: Sequence[Sequence[int]], vocab_size: int = VOCABULARY) -> TokenDatastore:
    return TokenDatastore(DatastoreArrays.build(corpus, vocab_size), vocab_size)


def followers(corpus: Sequence[Tokens], ending: Tokens, depth: int) -> Counter[Tokens]:
    """What follows each occurrence of an ending that something follows, by brute force."""
    size = len(ending)
    return Counter(
        text[start + size : start + size + depth]
        for text in corpus
        for start in range(len(text) - size)
        if text[start : start + size] == ending
    )


def longest(corpus: Sequence[Tokens], text: Tokens, max_match: int) -> Tokens:
    """The longest ending that something follows, by brute force."""
    endings = [text[-size:] for size in range(min(max_match, len(text)), 0, -1)]
    return next((ending for ending in endings if followers(corpus, ending, 1)), ())


@given(lookup=lookups(), max_match=st.integers(1, 8), depth=st.integers(1, 5))
@settings(max_examples=300, deadline=None)
def test_a_lookup_finds_what_a_search_of_the_texts_finds(
    lookup: tuple[list[Tokens], Tokens], max_match: int, depth: int
) -> None:
    corpus, text = lookup
    found = store(corpus)
    match = found.longest_match(text, max_match)
    ending = longest(corpus, text, max_match)

    assert match.length == len(ending)
    if not ending:
        assert match == NO_MATCH
        return
    expected = followers(corpus, ending, depth)
    assert match.num_occurrences == expected.total()
    rows = found.continuations(match, match.num_occurrences, depth)
    assert Counter(map(tuple, rows)) == expected


@given(data=st.data(), corpus=corpora)
@settings(max_examples=100, deadline=None)
def test_every_part_of_a_text_is_found_at_full_length(
    data: st.DataObject, corpus: list[Tokens]
) -> None:
    text = data.draw(st.sampled_from([text for text in corpus if len(text) > 1]))
    end = data.draw(st.integers(1, len(text) - 1))
    match = store(corpus).longest_match(text[:end])

    assert match.length == end


@pytest.mark.parametrize(
    ("corpus", "text"),
    [
        ([(0, 1, 1, 1, 3), (2, 1, 1, 3)], (1, 1, 1, 1)),  # it would stand just before the better
        ([(2, 1, 1, 1, 3), (0, 1, 1, 3)], (1, 1, 1, 1)),  # just after it
    ],
)
def test_the_longest_match_may_be_on_either_side(corpus: list[Tokens], text: Tokens) -> None:
    match = store(corpus).longest_match(text)
    assert (match.length, match.num_occurrences) == (3, 1)


def test_what_ends_a_text_is_not_continued() -> None:
    found = store([(0, 1, 2), (1, 0)])

    # The pair 1, 2 occurs at the end of a text only, and so does 2 alone.
    assert found.longest_match((1, 2)) == NO_MATCH
    match = found.longest_match((0, 1))
    assert (match.length, found.continuations(match, 9, 5)) == (2, [[2]])


def test_no_match_and_no_continuation_runs_into_another_text() -> None:
    found = store([(0, 1), (2, 0)])

    assert found.longest_match((1, 2)).length == 1
    assert found.continuations(found.longest_match((0,)), 9, 5) == [[1]]


def test_a_token_that_the_vocabulary_lacks_ends_the_match() -> None:
    found = store([(0, 1, 2, 0)], vocab_size=3)

    for unknown in (3, 65535, 65536, -1):
        assert found.longest_match((unknown,)) == NO_MATCH
        assert found.longest_match((0, unknown, 2)).length == 1
        assert found.longest_match((0, 1, unknown)) == NO_MATCH


def test_of_many_occurrences_a_sample_at_even_distances_is_taken() -> None:
    # The pair 0, 1 occurs 100 times: in one order by what comes before, three quarters before a 2.
    corpus = [(9, 0, 1, 2)] * 75 + [(8, 0, 1, 3)] * 25
    found = store(corpus, vocab_size=10)
    match = found.longest_match((0, 1))
    rows = found.continuations(match, 8, 1)

    assert match == Match(2, match.first, match.first + 100)
    assert Counter(map(tuple, rows)) == {(2,): 6, (3,): 2}
    assert len(found.continuations(match, 99, 1)) == 99
    assert len(found.continuations(match, 1, 1)) == 1


def test_a_match_is_no_longer_than_what_was_sorted() -> None:
    text = tuple(range(100))
    found = store([text], vocab_size=100)

    assert found.longest_match(text[:90]).length == MAX_MATCH
    assert found.longest_match(text[:90], 5).length == 5


@pytest.mark.parametrize(
    ("vocab_size", "tokens", "pairs"),
    [
        (65535, np.uint16, np.uint32),
        (65536, np.uint32, np.uint64),
        (200_000, np.uint32, np.uint64),
    ],
)
def test_the_smallest_types_that_fit_are_used(vocab_size: int, tokens: type, pairs: type) -> None:
    last = vocab_size - 1
    corpus = [(last, 0, last, last), (0, last, 5)]
    arrays = DatastoreArrays.build(corpus, vocab_size)
    found = TokenDatastore(arrays, vocab_size)

    kinds = [array.dtype for _, array in arrays.items()]
    assert kinds == [tokens, np.uint32, pairs, np.uint32]
    for text in corpus:
        for end in range(1, len(text)):
            ending = text[:end]
            assert found.longest_match(ending).length == end
    assert found.continuations(found.longest_match((0, last)), 9, 3) == [[last], [5]]


def test_texts_and_tokens_are_counted() -> None:
    arrays = DatastoreArrays.build([(1, 2, 3), (), (1,)], VOCABULARY)

    assert (arrays.num_texts, arrays.num_tokens) == (3, 4)


@pytest.mark.parametrize("corpus", [[], [()], [(1,), (), (2,)]])
def test_texts_without_two_tokens_are_refused(corpus: list[Tokens]) -> None:
    with pytest.raises(InputError, match="no text has two tokens or more") as caught:
        DatastoreArrays.build(corpus, VOCABULARY)
    assert caught.value.hint


@pytest.mark.parametrize("token", [-1, VOCABULARY, 2**40])
def test_a_token_outside_the_vocabulary_is_refused(token: int) -> None:
    with pytest.raises(InputError, match=rf"text 1 has .*{token}.*; the vocabulary has .* 0 to 3"):
        DatastoreArrays.build([(1, 2), (0, token)], VOCABULARY)
