"""The prefix cache: longest beginnings against a naive oracle, bounds, and who goes first."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.errors import ConfigError
from specrag.models.prefix_cache import PrefixCache, States, common_prefix

PER_TOKEN = 2 * 2 * 2 * 3 * 4  # layers, keys and values, heads, width, float32


def states(tokens: tuple[int, ...]) -> States:
    """Keys that tell which tokens they belong to: the running sums of the sequence."""
    sums = torch.tensor(tokens, dtype=torch.float32).cumsum(0)
    keys = sums.view(1, -1, 1).expand(2, -1, 3).clone()
    return [(keys + layer, keys - layer) for layer in range(2)]


def naive_common(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count


def added(cache: PrefixCache, *sequences: tuple[int, ...]) -> PrefixCache:
    for tokens in sequences:
        cache.add(tokens, states(tokens))
    return cache


def length_of(cache: PrefixCache, prompt: tuple[int, ...], most: int = 999) -> int:
    """How much of a prompt is known; checks that the states are those of the prompt."""
    found = cache.longest(prompt, most)
    if found is None:
        return 0
    length = found[0][0].shape[1]
    for pair, expected in zip(found, states(prompt[:length]), strict=True):
        assert all(map(torch.equal, pair, expected))
    return length


# Few tokens and runs of them, so that beginnings are often shared.
sequences = st.lists(st.tuples(st.integers(1, 2), st.integers(1, 12)), max_size=5).map(
    lambda runs: tuple(token for token, count in runs for _ in range(count))
)


@given(sequences, sequences)
def test_the_common_beginning_is_that_of_a_loop(
    first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    assert common_prefix(first, second) == naive_common(first, second)
    assert common_prefix(list(first), list(second)) == naive_common(first, second)


@given(st.lists(sequences, max_size=8), sequences, st.integers(-2, 60))
@settings(deadline=None)
def test_the_longest_known_beginning_is_found(
    known: list[tuple[int, ...]], prompt: tuple[int, ...], most: int
) -> None:
    cache = added(PrefixCache(10**9), *known)
    expected = max((min(naive_common(k, prompt), most) for k in known), default=0)

    # Beginnings of fewer than sixteen tokens are not worth a copy.
    assert length_of(cache, prompt, most) == (expected if expected >= 16 else 0)


@given(st.lists(sequences, max_size=15), st.integers(0, 100 * PER_TOKEN))
@settings(deadline=None)
def test_the_bound_holds_and_no_entry_is_the_beginning_of_another(
    known: list[tuple[int, ...]], most: int
) -> None:
    cache = PrefixCache(most)
    for tokens in known:
        cache.add(tokens, states(tokens))
        entries = list(cache._entries)
        assert cache.num_bytes == sum(len(entry) * PER_TOKEN for entry in entries) <= most
        assert len(cache) == len(entries)
        for one in entries:
            assert all(naive_common(one, other) < len(one) for other in entries if other != one)
        if len(tokens) >= 16 and len(tokens) * PER_TOKEN <= most:
            assert length_of(cache, tokens) == len(tokens)


A, B, C = ((token,) * 20 for token in (1, 2, 3))


def test_the_least_recently_used_goes_first() -> None:
    cache = added(PrefixCache(45 * PER_TOKEN), A, B)
    assert length_of(cache, A) == 20  # now B is the older one
    cache.add(C, states(C))

    assert [length_of(cache, tokens) for tokens in (A, B, C)] == [20, 0, 20]


def test_adding_what_is_known_makes_it_recent() -> None:
    cache = added(PrefixCache(45 * PER_TOKEN), A, B, A[:18], C)

    assert [length_of(cache, tokens) for tokens in (A, B, C)] == [20, 0, 20]


def test_a_longer_sequence_takes_the_place_of_its_beginning() -> None:
    cache = added(PrefixCache(10**9), A, (*A, 5, 6), (*A, 7))

    assert len(cache) == 2
    assert [length_of(cache, (*A, *rest)) for rest in ((5, 6), (5, 9), (7,))] == [22, 21, 21]


@pytest.mark.parametrize("most", [0, 19 * PER_TOKEN])
def test_what_does_not_fit_is_not_kept_and_pushes_nothing_out(most: int) -> None:
    cache = added(PrefixCache(most), B[:16], A)

    assert length_of(cache, A) == 0
    assert length_of(cache, B) == (16 if most else 0)


def test_what_is_short_is_not_kept() -> None:
    assert len(added(PrefixCache(10**9), (), (1,), A[:15])) == 0


def test_a_negative_bound_is_refused() -> None:
    with pytest.raises(ConfigError, match="got -5"):
        PrefixCache(-5)
