"""A drafter that proposes what a test tells it to, and one thread for the tiny models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch

from specrag.decoding.budget import DraftBudget
from specrag.decoding.drafter import DraftContext, Drafter, DraftSession
from specrag.decoding.tree import DraftTree

Guess = Callable[[tuple[int, ...], tuple[int, ...], DraftBudget], DraftTree]
"""Prompt, output so far and budget to a draft."""


class ScriptedSession(DraftSession):
    """Keeps the output of each row, and counts how often it was closed."""

    def __init__(self, guess: Guess, contexts: Sequence[DraftContext]) -> None:
        self._guess = guess
        self._prompts = [context.prompt_ids for context in contexts]
        self.outputs: list[list[int]] = [[] for _ in contexts]
        self.num_closed = 0

    def propose(self, rows: Sequence[int], budget: Sequence[DraftBudget]) -> list[DraftTree]:
        return [
            self._guess(self._prompts[row], tuple(self.outputs[row]), most)
            for row, most in zip(rows, budget, strict=True)
        ]

    def observe(self, row: int, token_ids: Sequence[int]) -> None:
        self.outputs[row].extend(token_ids)

    def close(self) -> None:
        self.num_closed += 1


class ScriptedDrafter(Drafter):
    """Asks a function; keeps the sessions it opened for the test to look at."""

    name = "scripted"

    def __init__(self, guess: Guess) -> None:
        self._guess = guess
        self.sessions: list[ScriptedSession] = []

    def open(self, contexts: Sequence[DraftContext]) -> ScriptedSession:
        self.sessions.append(ScriptedSession(self._guess, contexts))
        return self.sessions[-1]


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
