from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.errors import ConfigError
from specrag.evaluation.speed.threads import pinned_threads, spread

affine = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity here")


@affine
def test_this_process_and_its_children_are_held_and_let_go() -> None:
    before = os.sched_getaffinity(0), torch.get_num_threads()
    ask = [sys.executable, "-c", "import os; print(len(os.sched_getaffinity(0)))"]
    with pinned_threads(1) as threads:
        assert threads == torch.get_num_threads() == len(os.sched_getaffinity(0)) == 1
        child = subprocess.run(ask, capture_output=True, text=True, check=True)
        assert child.stdout.strip() == "1"
    assert (os.sched_getaffinity(0), torch.get_num_threads()) == before


@affine
def test_they_are_let_go_after_an_error_too() -> None:
    before = os.sched_getaffinity(0), torch.get_num_threads()
    with pytest.raises(KeyboardInterrupt), pinned_threads(1):
        raise KeyboardInterrupt
    assert (os.sched_getaffinity(0), torch.get_num_threads()) == before


def test_by_default_as_many_as_torch_would_take() -> None:
    with pinned_threads() as threads:
        assert threads == torch.get_num_threads()


@affine
def test_more_threads_than_processors_are_refused() -> None:
    with pytest.raises(ConfigError, match="processors for 100000 threads"), pinned_threads(100000):
        pass


@pytest.mark.parametrize(
    ("allowed", "shared", "expected"),
    [
        ([0, 1, 2, 3], {0: [0, 1], 2: [2, 3]}, [0, 2, 1, 3]),
        ([0, 1, 2, 3], {0: [0, 2], 1: [1, 3]}, [0, 1, 2, 3]),
        ([1, 2, 3], {0: [0, 1], 2: [2, 3]}, [1, 2, 3]),
        ([4, 6], {}, [4, 6]),
    ],
)
def test_each_core_comes_once_before_any_comes_again(
    allowed: list[int], shared: dict[int, list[int]], expected: list[int]
) -> None:
    def siblings(processor: int) -> list[int]:
        return next((found for found in shared.values() if processor in found), [processor])

    assert spread(allowed, siblings) == expected


@given(st.sets(st.integers(0, 31), min_size=1), st.integers(1, 4))
@settings(deadline=None, max_examples=50)
def test_the_first_of_them_are_on_as_many_cores_as_there_are(allowed: set[int], ways: int) -> None:
    found = spread(
        sorted(allowed), lambda one: range(one // ways * ways, one // ways * ways + ways)
    )
    assert sorted(found) == sorted(allowed)
    cores = len({one // ways for one in allowed})
    assert len({one // ways for one in found[:cores]}) == cores
