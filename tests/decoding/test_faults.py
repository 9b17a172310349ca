"""Whatever fails in the middle of a round, the session is as before it and can go on."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from specrag.decoding.budget import DraftBudget, SpeculationConfig
from specrag.decoding.drafter import DraftContext
from specrag.decoding.generator import Generation, SpeculativeGenerator
from specrag.decoding.session import DecodingSession
from specrag.decoding.tree import DraftTree
from tests.decoding.scripts import (
    CONFIG,
    TOKENIZER,
    ScriptedDrafter,
    ScriptedSession,
    alone,
    check_between_rounds,
    knowing,
    open_session,
    request,
    target,
)

FIRST = [request(1, "penalised", max_tokens=16), request(6, max_tokens=10)]
JOINS = request(4, "sampled", max_tokens=10)
LARGEST = 60  # more calls than any place gets in one run


class Broken(Exception):
    """What the parts raise."""


class Fuse:
    """Raises at the n-th call, once."""

    def __init__(self, number: int, error: type[BaseException]) -> None:
        self.left = number
        self._error = error

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise self._error


class FailingSession(ScriptedSession):
    """Raises at one of its calls."""

    def __init__(self, place: str, fuse: Fuse, inner: Any) -> None:
        super().__init__(*inner)
        self.place, self.fuse = place, fuse

    def propose(self, rows: Sequence[int], budget: Sequence[DraftBudget]) -> list[DraftTree]:
        if self.place == "propose":
            self.fuse()
        return super().propose(rows, budget)

    def propose_after(self, rows: Any, budget: Any, ahead: Any) -> list[DraftTree]:
        if self.place == "propose_after" and any(ahead):
            self.fuse()
        return super().propose_after(rows, budget, ahead)

    def observe(
        self,
        row: int,
        token_ids: Sequence[int],
        features: Mapping[int, torch.Tensor] | None = None,
    ) -> None:
        if self.place == "observe":
            self.fuse()
        super().observe(row, token_ids, features)


class FailingDrafter(ScriptedDrafter):
    def __init__(self, place: str, fuse: Fuse, guess: Any) -> None:
        super().__init__(guess)
        self._place, self._fuse = place, fuse

    def open(self, contexts: Sequence[DraftContext]) -> ScriptedSession:
        inner = (self._guess, contexts)
        self.sessions.append(FailingSession(self._place, self._fuse, inner))
        return self.sessions[-1]


class FusedProcessor:
    """A user's processor that changes nothing and raises at one of its calls."""

    def __init__(self, fuse: Fuse) -> None:
        self._fuse = fuse

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self._fuse()
        return scores


def after(call: Callable[..., Any], fuse: Fuse) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        found = call(*args, **kwargs)
        fuse()
        return found

    return wrapped


@contextmanager
def failing(place: str, fuse: Fuse) -> Iterator[None]:
    """Lets the target fail: behind a pass, or between its layers, when the cache is half full."""
    with pytest.MonkeyPatch.context() as patch:
        if place in ("forward", "prefill"):
            patch.setattr(target(), place, after(getattr(target(), place), fuse))
        handles = []
        if place == "layer":
            layers = target().model.model.layers
            handles = [layers[1].register_forward_pre_hook(lambda *_: fuse())]
        yield
        for handle in handles:
            handle.remove()


def everything(session: DecodingSession) -> list[Any]:
    """All that a failed round must not change, keys and values included."""
    rows = [
        (
            list(row.token_ids),
            row.text,
            list(row.logprobs),
            row.finish_reason,
            row.history.view().tolist(),
            dataclasses.asdict(row.stats),
            None if row.trace is None else dataclasses.asdict(row.trace),
        )
        for row in session.rows
    ]
    cache = session.cache
    states = [cache.export_row(row, length) for row, length in enumerate(cache.lengths)]
    return [rows, cache.lengths, states]


def assert_same(before: list[Any], now: list[Any]) -> None:
    assert now[:2] == before[:2]
    for row, other in zip(before[2], now[2], strict=True):
        for pair, other_pair in zip(row, other, strict=True):
            assert all(map(torch.equal, pair, other_pair))


def play(place: str, number: int, config: SpeculationConfig, error: type[BaseException]) -> bool:
    """Decodes with a failure at the n-th call of a place; says whether there was one."""
    fuse = Fuse(number, error)
    own = {"processor 0": 0, "processor 1": 1}.get(place)
    first = [
        dataclasses.replace(asked, processors=(FusedProcessor(fuse),)) if own == index else asked
        for index, asked in enumerate(FIRST)
    ]
    drafter = FailingDrafter(place, fuse, knowing([*FIRST, JOINS]))
    session = open_session(drafter, first, config)
    failed = False
    with failing(place, fuse):
        while not session.finished or len(session.rows) < 3:
            if len(session.rows) == 2 and len(session.rows[0].token_ids) > 2:
                session.add(JOINS)
            before = everything(session)
            try:
                session.step()
            except error:
                failed = True
                if place != "observe":
                    assert_same(before, everything(session))
                    assert drafter.sessions[0].outputs == [row.token_ids for row in session.rows]
            check_between_rounds(session)
    session.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("specrag-draft")]
    for row, asked in zip(session.rows, [*FIRST, JOINS], strict=True):
        expected = alone(asked)
        assert tuple(row.token_ids) == expected.token_ids
        assert (row.text, row.finish_reason) == (expected.text, expected.finish_reason)
    return failed


PLACES = ["propose", "forward", "prefill", "layer", "processor 0", "processor 1", "observe"]


@pytest.mark.parametrize("place", PLACES)
def test_a_failed_round_changes_nothing_and_can_be_tried_again(place: str) -> None:
    error = KeyboardInterrupt if place in ("forward", "layer") else Broken
    count = next(n for n in range(1, LARGEST) if not play(place, n, CONFIG, error))

    # Every call of a run has failed once: more than one, or nothing much was shown.
    assert count - 1 >= (2 if place == "prefill" else 4)


@pytest.mark.parametrize("place", ["propose_after", "propose", "forward", "processor 1", "observe"])
def test_nor_does_it_while_the_next_round_is_being_drafted(place: str) -> None:
    config = dataclasses.replace(CONFIG, optimistic="on")
    count = next(n for n in range(1, LARGEST) if not play(place, n, config, Broken))

    assert count - 1 >= 3


def test_a_drafter_that_cannot_take_note_is_the_last_to_be_told() -> None:
    drafter = FailingDrafter("observe", Fuse(4, Broken), knowing([*FIRST, JOINS]))
    session = open_session(drafter, [*FIRST, JOINS])
    session.step()
    before = [list(row.token_ids) for row in session.rows]
    with pytest.raises(Broken):
        session.step()

    # The round counts, and the other rows have been told of theirs.
    heard = drafter.sessions[0].outputs
    assert all(len(row.token_ids) > len(old) for row, old in zip(session.rows, before, strict=True))
    assert [heard[index] == row.token_ids for index, row in enumerate(session.rows)] == [
        False,
        True,
        True,
    ]


@pytest.mark.parametrize("wrong", [[], [DraftTree()] * 5])
def test_a_drafter_that_forgets_a_row_is_found_out_before_anything_changes(
    wrong: list[DraftTree], monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("propose", "propose_after"):
        config = dataclasses.replace(CONFIG, optimistic="on")
        session = open_session(ScriptedDrafter(knowing(FIRST)), FIRST, config)
        session.step()
        before = everything(session)
        with monkeypatch.context() as patch:
            patch.setattr(ScriptedSession, place, lambda *_: wrong)
            with pytest.raises(ValueError, match=r"zip\(\) argument"):
                session.step()
        assert_same(before, everything(session))
        session.close()


@pytest.mark.parametrize("place", PLACES)
def test_the_next_request_of_a_generator_that_failed_is_right(place: str) -> None:
    drafter = FailingDrafter(place, Fuse(2, Broken), knowing([FIRST[0], JOINS]))
    generator = SpeculativeGenerator(target(), TOKENIZER, drafter, CONFIG)
    asked = FIRST[0]
    if place.startswith("processor"):
        processors: Any = [FusedProcessor(Fuse(2, Broken))]
    else:
        processors = []
    failure = Fuse(1 if place == "prefill" else 2, Broken)
    with failing(place, failure), pytest.raises(Broken):
        generator.generate(asked.prompt_ids, asked.params, logits_processors=processors)

    assert drafter.sessions[0].num_closed == 1
    generator.drafter = ScriptedDrafter(knowing([JOINS]))
    found = generator.generate(JOINS.prompt_ids, JOINS.params)
    assert isinstance(found, Generation)
    assert found.token_ids == alone(JOINS).token_ids


def test_a_row_that_cannot_be_prefilled_can_be_cancelled() -> None:
    class Never:
        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            raise Broken

    session = open_session(ScriptedDrafter(knowing([*FIRST, JOINS])), FIRST)
    session.step()
    bad = session.add(dataclasses.replace(JOINS, processors=(Never(),)))
    for _ in range(2):
        with pytest.raises(Broken):
            session.step()
    session.cancel(bad)
    while not session.finished:
        session.step()

    assert [tuple(r.token_ids) for r in session.rows[:2]] == [alone(a).token_ids for a in FIRST]
    assert session.rows[bad].token_ids == []
