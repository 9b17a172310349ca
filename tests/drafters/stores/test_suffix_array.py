from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.drafters.stores.suffix_array import pair_keys, sort_by_context

SEPARATOR = 3
sequences = st.lists(st.integers(0, SEPARATOR), min_size=1, max_size=60)


def before(tokens: list[int], position: int, depth: int) -> list[int]:
    """The tokens before a position, the nearest first; before the first there are separators."""
    padded = [SEPARATOR] * depth + tokens
    return padded[position : position + depth][::-1]


@given(tokens=sequences, depth=st.sampled_from([2, 4, 8, 32]))
@settings(max_examples=200, deadline=None)
def test_positions_are_sorted_by_what_precedes_them(tokens: list[int], depth: int) -> None:
    order = sort_by_context(pair_keys(np.array(tokens), SEPARATOR), depth).tolist()

    places = range(len(tokens))
    assert order == sorted(places, key=lambda position: (before(tokens, position, depth), position))


def test_a_depth_between_powers_of_two_compares_at_least_so_many_tokens() -> None:
    tokens = [0] * 5 + [1] + [0] * 4 + [2]
    order = sort_by_context(pair_keys(np.array(tokens), SEPARATOR), 5).tolist()

    contexts = [before(tokens, position, 5) for position in order]
    assert contexts == sorted(contexts)


def test_large_tokens_are_packed_without_overflow() -> None:
    separator = 2**32 - 1
    keys = pair_keys(np.array([separator - 1, 0, separator], dtype=np.uint32), separator)

    packed = [separator * 2**32 + separator, (separator - 1) * 2**32 + separator, separator - 1]
    assert keys.tolist() == packed


def test_a_repetitive_sequence_is_sorted_to_the_depth_only() -> None:
    order = sort_by_context(pair_keys(np.zeros(1000, dtype=np.uint16), SEPARATOR), 16)

    # Beyond the first 16, all have the same 16 tokens before them and stay in their order.
    assert order.tolist() == [*range(16, 1000), *reversed(range(16))]


@pytest.mark.parametrize("progress", [True, False])
def test_progress_is_shown_when_asked_for(
    progress: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    sort_by_context(pair_keys(np.array([1, 2, 1]), SEPARATOR), 8, progress=progress)

    assert ("sorting: 100%" in capsys.readouterr().err) == progress
