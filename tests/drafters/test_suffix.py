from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.decoding.budget import DraftBudget
from specrag.decoding.drafter import DraftContext
from specrag.decoding.tree import DraftTree
from specrag.drafters.suffix import SuffixDrafter
from specrag.errors import ConfigError

Tokens = tuple[int, ...]
texts = st.lists(st.integers(0, 2), max_size=14).map(tuple)
probabilities = st.sampled_from([0.0, 0.05, 0.2, 0.5])


def propose(
    running: Tokens,
    passages: list[Tokens],
    budget: DraftBudget,
    min_probability: float = 0.0,
    escape: float = 2.0,
    ahead: Tokens = (),
) -> DraftTree:
    """Splits the running text between prompt and output."""
    cut = len(running) // 2
    session = SuffixDrafter(min_probability, escape).open(
        [DraftContext(running[:cut], tuple(passages))]
    )
    session.observe(0, running[cut:])
    return session.propose_after([0], [budget], [ahead])[0]


def followers(all_texts: list[Tokens], string: Tokens) -> tuple[Counter[int], list[int]]:
    """Counts what follows a string, and lists it in the order of first sight."""
    size = len(string)
    seen = [
        text[start + size]
        for text in all_texts
        for start in range(len(text) - size)
        if text[start : start + size] == string
    ]
    return Counter(seen), list(dict.fromkeys(seen))


def grown(
    all_texts: list[Tokens], string: Tokens, budget: DraftBudget, least: float, escape: float
) -> Iterator[tuple[float, Tokens]]:
    """Yields every path within depth, branching and probability, as the docstring defines them."""
    waiting: list[tuple[float, Tokens, Tokens]] = [(1.0, (), string)]
    while waiting:
        probability, path, context = waiting.pop()
        while context and not followers(all_texts, context)[0]:
            context = context[1:]
        if not context or len(path) == budget.max_depth:
            continue
        counts, oldest_first = followers(all_texts, context)
        age = {token: place for place, token in enumerate(oldest_first)}
        ranked = sorted(counts, key=lambda token: (-counts[token], -age[token]))
        for token in ranked[: budget.branching]:
            share = counts[token] / (counts.total() + escape / len(context))
            if probability * share >= least:
                longer = (*path, token)
                waiting.append((probability * share, longer, (*context, token)))
                yield probability * share, longer


def paths(tree: DraftTree) -> list[Tokens]:
    return [tuple(tree.token_ids[step] for step in tree.path_to(node)) for node in range(len(tree))]


@given(
    running=texts,
    passages=st.lists(texts, max_size=2),
    depth=st.integers(1, 6),
    least=probabilities,
    escape=st.sampled_from([0.0, 0.5, 2.0]),
)
@settings(max_examples=100, deadline=None)
def test_a_chain_is_what_the_counts_say(
    running: Tokens, passages: list[Tokens], depth: int, least: float, escape: float
) -> None:
    budget = DraftBudget(depth, depth)
    expected = [path for _, path in grown([*passages, running], running, budget, least, escape)]

    assert paths(propose(running, passages, budget, least, escape)) == expected


@given(
    running=texts,
    passages=st.lists(texts, max_size=2),
    ahead=st.lists(st.integers(0, 3), max_size=5).map(tuple),
    depth=st.integers(1, 6),
)
@settings(max_examples=150, deadline=None)
def test_tokens_ahead_lead_on_but_count_for_nothing(
    running: Tokens, passages: list[Tokens], ahead: Tokens, depth: int
) -> None:
    budget = DraftBudget(depth, depth)
    known = [*passages, running]
    expected = [path for _, path in grown(known, (*running, *ahead), budget, 0.0, 2.0)]

    assert paths(propose(running, passages, budget, ahead=ahead)) == expected


@given(
    running=texts,
    passages=st.lists(texts, max_size=2),
    nodes=st.integers(1, 10),
    branching=st.integers(2, 3),
    least=probabilities,
)
@settings(max_examples=100, deadline=None)
def test_a_tree_holds_the_likeliest_paths_best_first(
    running: Tokens, passages: list[Tokens], nodes: int, branching: int, least: float
) -> None:
    budget = DraftBudget(nodes, 3, branching)
    possible = list(grown([*passages, running], running, budget, least, 2.0))
    probability = {path: value for value, path in possible}
    found = [probability[path] for path in paths(propose(running, passages, budget, least))]

    assert found == pytest.approx(heapq.nlargest(nodes, probability.values()))


def test_of_equal_probabilities_the_shallower_comes_first() -> None:
    # Without an escape the certain 9 is as likely as the 8 before it, and that as the 7.
    tree = propose((1, 7, 9, 1, 8, 9, 3, 1), [], DraftBudget(3, 3, 2), escape=0.0)

    assert paths(tree) == [(8,), (7,), (8, 9)]


def test_the_frequent_continuation_beats_the_recent_one() -> None:
    assert propose((1, 7, 1, 7, 1, 8, 1), [], DraftBudget(1, 1)).token_ids == (7,)


def test_of_equal_counts_the_newest_continuation_is_taken() -> None:
    assert propose((1, 7, 1, 8, 1), [], DraftBudget(1, 1)).token_ids == (8,)


def test_a_longer_match_is_drafted_further() -> None:
    budget = DraftBudget(9, 9)
    source = tuple(range(1, 40))
    short, long = (propose(source[:size], [source], budget, 0.3) for size in (1, 5))

    assert 0 < len(short) < len(long)


@pytest.mark.parametrize("min_probability", [-0.1, 1.5, float("nan")])
def test_a_floor_that_is_no_probability_is_refused(min_probability: float) -> None:
    with pytest.raises(ConfigError, match="min_probability must be between 0 and 1"):
        SuffixDrafter(min_probability)


@pytest.mark.parametrize("escape", [-1.0, float("inf"), float("nan")])
def test_an_impossible_escape_is_refused(escape: float) -> None:
    with pytest.raises(ConfigError, match="escape must be finite and not negative"):
        SuffixDrafter(escape=escape)
