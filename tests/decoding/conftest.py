"""A drafter that proposes what a test tells it to, and one thread for the tiny models."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from tests.decoding.scripts import Guess, ScriptedDrafter


@pytest.fixture
def scripted() -> Callable[[Guess], ScriptedDrafter]:
    """Makes a drafter of a function from prompt, output and budget to a tree."""
    return ScriptedDrafter


@pytest.fixture(scope="package", autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads only wait for each other on matrices this small, most of all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
