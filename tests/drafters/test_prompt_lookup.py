from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.decoding.budget import DraftBudget
from specrag.decoding.drafter import DraftContext
from specrag.decoding.tree import DraftTree
from specrag.drafters.prompt_lookup import PromptLookupDrafter
from specrag.errors import ConfigError

Tokens = list[int]
texts = st.lists(st.integers(0, 3), max_size=20)


def propose(
    drafter: PromptLookupDrafter, running: Tokens, passages: list[Tokens], num_tokens: int
) -> DraftTree:
    """Splits the running text between prompt and output."""
    cut = len(running) // 2
    context = DraftContext(tuple(running[:cut]), tuple(map(tuple, passages)))
    session = drafter.open([context])
    session.observe(0, running[cut:])
    return session.propose([0], [DraftBudget(num_tokens, num_tokens)])[0]


def scanned(running: Tokens, passages: list[Tokens], sizes: range, num_tokens: int) -> Tokens:
    """What a plain scan finds: longest n-gram first, the newest text and position first."""
    for size in sizes:
        if size > len(running):
            continue
        ngram = running[len(running) - size :]
        for text in (running, *reversed(passages)):
            for start in range(len(text) - size - 1, -1, -1):
                if text[start : start + size] == ngram:
                    return followed(text, start + size, num_tokens, text is running)
    return []


def followed(text: Tokens, start: int, num_tokens: int, growing: bool) -> Tokens:
    read = list(text)
    for position in range(start, start + num_tokens):
        if growing:
            read.append(read[position])
    return read[start : start + num_tokens]


@given(
    running=texts,
    passages=st.lists(texts, max_size=2),
    min_ngram=st.integers(1, 3),
    longer=st.integers(0, 2),
    num_tokens=st.integers(1, 8),
)
@settings(max_examples=150, deadline=None)
def test_the_hash_map_finds_what_a_scan_finds(
    running: Tokens, passages: list[Tokens], min_ngram: int, longer: int, num_tokens: int
) -> None:
    drafter = PromptLookupDrafter(min_ngram + longer, min_ngram)
    expected = scanned(running, passages, range(min_ngram + longer, min_ngram - 1, -1), num_tokens)

    assert propose(drafter, running, passages, num_tokens) == DraftTree.chain(expected)


@given(
    running=texts,
    passages=st.lists(texts, max_size=2),
    ahead=st.lists(st.integers(0, 3), max_size=6),
    budget=st.builds(DraftBudget, st.integers(0, 8), st.integers(0, 8)),
)
@settings(max_examples=150, deadline=None)
def test_tokens_ahead_are_like_committed_ones(
    running: Tokens, passages: list[Tokens], ahead: Tokens, budget: DraftBudget
) -> None:
    context = DraftContext(tuple(running), tuple(map(tuple, passages)))
    session = PromptLookupDrafter(3, 1).open([context])
    (assumed,) = session.propose_after([0], [budget], [ahead])
    session.observe(0, ahead)

    assert [assumed] == session.propose([0], [budget])


def test_the_longer_ngram_wins_over_the_newer_one() -> None:
    running = [1, 2, 3, 9, 3, 8, 1, 2, 3]

    assert propose(PromptLookupDrafter(2, 1), running, [], 1).token_ids == (9,)
    assert propose(PromptLookupDrafter(1, 1), running, [], 1).token_ids == (8,)


def test_ngrams_shorter_than_the_shortest_are_not_looked_up() -> None:
    assert propose(PromptLookupDrafter(3, 2), [1, 2, 3, 9, 2], [], 4) == DraftTree()


@pytest.mark.parametrize(("max_ngram", "min_ngram"), [(2, 3), (3, 0), (0, 0)])
def test_impossible_sizes_are_refused(max_ngram: int, min_ngram: int) -> None:
    with pytest.raises(ConfigError, match=f"min_ngram={min_ngram} and max_ngram={max_ngram}"):
        PromptLookupDrafter(max_ngram, min_ngram)
