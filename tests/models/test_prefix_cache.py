"""The prefix cache: longest beginnings against a naive oracle, bounds, and who goes first."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.errors import ConfigError
from specrag.models.prefix_cache import PrefixCache, States, common_prefix

PER_TOKEN = 2 * 2 * 2 * 3 * 4  # layers, keys and values, heads, width, float32


def states(tokens: tuple[int, ...], layers: tuple[int, ...] = ()) -> States:
    """Keys and features that tell which tokens they belong to: the running sums of the sequence."""
    sums = torch.tensor(tokens, dtype=torch.float32).cumsum(0)
    keys = sums.view(1, -1, 1).expand(2, -1, 3).clone()
    pairs = [(keys + layer, keys - layer) for layer in range(2)]
    return States(pairs, {layer: sums.unsqueeze(1) * layer for layer in layers})


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


def length_of(
    cache: PrefixCache, prompt: tuple[int, ...], most: int = 999, layers: tuple[int, ...] = ()
) -> int:
    """How much of a prompt is known; checks that the states are those of the prompt."""
    found = cache.longest(prompt, most, layers)
    if found is None:
        return 0
    length = found.keys_values[0][0].shape[1]
    expected = states(prompt[:length], layers)
    for pair, other in zip(found.keys_values, expected.keys_values, strict=True):
        assert all(map(torch.equal, pair, other))
    assert found.features.keys() == expected.features.keys()
    assert all(found.features[layer].equal(expected.features[layer]) for layer in layers)
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


LAYERS = (3, 1, 4)
layers_of = st.sets(st.sampled_from(LAYERS)).map(lambda chosen: tuple(sorted(chosen)))
PER_LAYER = 4  # one float32 a token


@given(
    st.lists(st.tuples(sequences, layers_of), max_size=8), sequences, layers_of, st.integers(0, 60)
)
@settings(deadline=None)
def test_only_a_beginning_that_has_all_the_features_counts(
    known: list[tuple[tuple[int, ...], tuple[int, ...]]],
    prompt: tuple[int, ...],
    wanted: tuple[int, ...],
    most: int,
) -> None:
    cache = PrefixCache(10**9)
    newest: dict[tuple[int, ...], tuple[int, ...]] = {}
    for tokens, layers in known:
        cache.add(tokens, states(tokens, layers))
        if not set(newest.get(tokens, ())) >= set(layers):
            newest[tokens] = layers  # of the same tokens the newer features stay
    expected = max(
        (min(naive_common(k, prompt), most) for k, has in newest.items() if {*has} >= {*wanted}),
        default=0,
    )

    assert length_of(cache, prompt, most, wanted) >= (expected if expected >= 16 else 0)
    assert cache.num_bytes == sum(kept.num_bytes for kept in cache._entries.values())
    for one, kept in cache._entries.items():
        assert kept.num_bytes == len(one) * (PER_TOKEN + PER_LAYER * len(kept.features))
        for other, beside in cache._entries.items():
            begins = one != other and naive_common(one, other) == len(one)
            assert not (begins and beside.features.keys() >= kept.features.keys())


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([(), (1,)], (1,)),  # the richer one replaces the poorer
        ([(1, 3), (1,)], (1, 3)),  # and stays when a poorer one comes
        ([(1,), (3,)], (3,)),
    ],
)
def test_of_equal_tokens_one_is_kept(
    layers: list[tuple[int, ...]], expected: tuple[int, ...]
) -> None:
    cache = PrefixCache(10**9)
    for each in layers:
        cache.add(A, states(A, each))

    assert [tuple(kept.features) for kept in cache._entries.values()] == [expected]


def test_a_longer_sequence_without_features_leaves_a_shorter_one_that_has_them() -> None:
    cache = PrefixCache(10**9)
    cache.add(A, states(A, (1,)))
    cache.add((*A, 5), states((*A, 5)))

    assert length_of(cache, (*A, 5)) == 21
    assert length_of(cache, (*A, 5), layers=(1,)) == 20
    assert length_of(cache, (*A, 5), layers=(3,)) == 0


def test_features_count_against_the_bound() -> None:
    cache = PrefixCache(20 * PER_TOKEN)
    cache.add(A, states(A, (1,)))
    assert length_of(cache, A) == 0
    cache.add(A, states(A))

    assert length_of(cache, A) == 20
