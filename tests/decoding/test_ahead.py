"""Drafting ahead: the next round is guessed while this one is verified; no answer changes."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.decoding.ahead import AheadDrafting
from specrag.decoding.budget import DraftBudget, PassCosts, SpeculationConfig
from specrag.decoding.drafter import Drafter
from specrag.decoding.row import DecodingRequest
from specrag.decoding.tree import ROOT, DraftTree, likeliest_chain
from specrag.drafters.prompt_lookup import PromptLookupDrafter
from specrag.drafters.suffix import SuffixDrafter
from tests.decoding.scripts import (
    CONFIG,
    MODES,
    ScriptedDrafter,
    ScriptedSession,
    alone,
    answers,
    check_between_rounds,
    knowing,
    open_session,
    random_tree,
    request,
    truthful,
)

ON = replace(CONFIG, optimistic="on")


def draft_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("specrag-draft")]


class GuardedSession(ScriptedSession):
    """Notices when it is used by two at a time, or drafts in the wrong thread."""

    busy = False
    num_ahead = 0

    def propose(self, rows: Sequence[int], budget: Sequence[DraftBudget]) -> list[DraftTree]:
        assert not self.busy
        assert threading.current_thread() is threading.main_thread()
        return super().propose_after(rows, budget, [()] * len(rows))

    def propose_after(self, rows: Any, budget: Any, ahead: Any) -> list[DraftTree]:
        assert threading.current_thread() is not threading.main_thread()
        assert torch.is_inference_mode_enabled()
        assert len(rows) == len(set(rows)) == len(budget) == len(ahead)
        self.busy = True
        self.num_ahead += 1
        threading.Event().wait(0.002)  # long enough to be met, were anyone to come
        try:
            return super().propose_after(rows, budget, ahead)
        finally:
            self.busy = False

    def observe(
        self,
        row: int,
        token_ids: Sequence[int],
        features: Mapping[int, torch.Tensor] | None = None,
    ) -> None:
        assert not self.busy
        super().observe(row, token_ids, features)

    def close(self) -> None:
        assert not self.busy
        super().close()


class GuardedDrafter(ScriptedDrafter):
    def open(self, contexts: Any) -> ScriptedSession:
        self.sessions.append(GuardedSession(self._guess, contexts))
        return self.sessions[-1]


BATCHES = [[request(number, mode, max_tokens=12)] for number, mode in enumerate(MODES)] + [
    [request(20 + n, mode, max_tokens=6 + n) for n, mode in enumerate([*MODES, "greedy"])]
]
DRAFTERS: dict[str, Callable[[Sequence[DecodingRequest]], Drafter]] = {
    "knowing": lambda asked: GuardedDrafter(knowing(asked)),
    "truthful": lambda asked: GuardedDrafter(truthful(asked)),
    "suffix": lambda asked: SuffixDrafter(),
    "prompt_lookup": lambda asked: PromptLookupDrafter(),
}


@pytest.mark.parametrize("batch", BATCHES, ids=[*MODES, "batch"])
@pytest.mark.parametrize("name", DRAFTERS)
def test_answers_are_the_same_with_drafts_made_ahead(
    name: str, batch: list[DecodingRequest]
) -> None:
    session = open_session(DRAFTERS[name](batch), batch, ON)
    while not session.finished:
        session.step()
        check_between_rounds(session)
    session.close()

    assert answers(session) == [alone(asked) for asked in batch]
    assert not draft_threads()
    kept = sum(row.stats.num_ahead_kept for row in session.rows)
    drafted = sum(row.stats.num_ahead_drafts for row in session.rows)
    assert kept <= drafted <= sum(row.stats.num_passes for row in session.rows)
    if name == "truthful":
        assert kept > 0


def test_a_right_guess_replaces_the_next_proposal_and_is_counted() -> None:
    asked = request(3, max_tokens=21, ignore_eos=True)
    seen: list[int] = []
    truth = truthful([asked])

    def guess(prompt: tuple[int, ...], output: tuple[int, ...], budget: DraftBudget) -> DraftTree:
        seen.append(len(output))
        return truth(prompt, output, budget)

    drafter = GuardedDrafter(guess)
    session = open_session(drafter, [asked], replace(ON, num_speculative_tokens=3, max_depth=3))
    while not session.finished:
        session.step()
    session.close()
    stats = session.rows[0].stats

    # Four tokens a round; the first draft is asked for, those behind it are ready.
    assert stats.num_passes == 5
    assert stats.num_accepted_tokens == 15
    assert seen == [1, 4, 8, 12, 16, 20]
    # The last round drafts for a row that has ended by then, so that one is not kept.
    assert (stats.num_ahead_drafts, stats.num_ahead_kept) == (5, 4)


def test_a_wrong_guess_is_dropped() -> None:
    asked = request(3, max_tokens=12, ignore_eos=True)
    drafter = GuardedDrafter(lambda *_: DraftTree.chain([0, 0, 0]))
    session = open_session(drafter, [asked], ON)
    while not session.finished:
        session.step()
    session.close()

    assert answers(session) == [alone(asked)]
    assert session.rows[0].stats.num_ahead_kept == 0
    assert session.rows[0].stats.num_ahead_drafts > 5


def test_a_drafter_that_cannot_look_ahead_is_used_as_ever() -> None:
    asked = [request(1), request(2)]
    truth = truthful(asked)

    def guess(prompt: tuple[int, ...], output: tuple[int, ...], budget: DraftBudget) -> DraftTree:
        here = threading.current_thread() is threading.main_thread()
        return truth(prompt, output, budget) if here else DraftTree()

    session = open_session(ScriptedDrafter(guess), asked, ON)
    while not session.finished:
        session.step()
    session.close()

    assert answers(session) == [alone(each) for each in asked]
    assert all(row.stats.num_ahead_drafts == 0 for row in session.rows)
    assert all(row.stats.num_accepted_tokens for row in session.rows)


def test_rows_come_and_go_while_drafts_are_ready() -> None:
    asked = [request(number, max_tokens=14, ignore_eos=True) for number in range(4)]
    session = open_session(GuardedDrafter(truthful(asked)), asked[:2], ON)
    session.step()
    session.step()
    session.cancel(0)
    session.add(asked[2])
    session.step()
    session.add(asked[3])
    while not session.finished:
        session.step()
        check_between_rounds(session)
    session.close()

    assert answers(session)[1:] == [alone(each) for each in asked[1:]]
    assert session.rows[0].finish_reason == "cancelled"


def test_nothing_is_drafted_ahead_for_rows_that_may_not_draft() -> None:
    asked = [request(5, max_tokens=30, ignore_eos=True)]
    costs = PassCosts((1, 8), (1.0, 1.2), draft_level=5.0)
    drafter = GuardedDrafter(truthful(asked))
    session = open_session(drafter, asked, ON, costs)
    while not session.finished:
        session.step()
    session.close()

    assert session.rows[0].stats.num_off_passes > 10
    assert session.rows[0].stats.num_draft_tokens <= 12
    (made,) = drafter.sessions
    assert isinstance(made, GuardedSession)
    assert made.num_ahead <= 8


@pytest.mark.parametrize(
    ("optimistic", "device", "expected"),
    [
        ("on", "cpu", True),
        ("off", "cpu", False),
        ("off", "cuda", False),
        ("auto", "cpu", False),
        ("auto", "cuda", True),
    ],
)
def test_auto_drafts_ahead_where_target_and_drafter_have_a_device_each(
    optimistic: str, device: str, expected: bool
) -> None:
    asked = [request(3, max_tokens=12, ignore_eos=True)]
    drafter = ScriptedDrafter(truthful(asked))
    drafter.device = device
    config = replace(CONFIG, optimistic=optimistic)
    session = open_session(drafter, asked, config)
    while not session.finished:
        session.step()
        assert bool(draft_threads()) == (expected and len(session.rows[0].token_ids) > 1)
    session.close()

    assert not draft_threads()
    assert (session.rows[0].stats.num_ahead_drafts > 0) == expected
    assert SpeculationConfig().optimistic == "auto"


@given(st.integers(0, 10_000), st.booleans())
@settings(deadline=None)
def test_what_is_kept_is_what_was_drafted_below_the_tokens_that_came(
    seed: int, right: bool
) -> None:
    rng = random.Random(seed)
    sent, ahead = random_tree(rng), random_tree(rng)
    path = likeliest_chain(sent).token_ids
    session = ScriptedSession(lambda *_: ahead, [])
    session._prompts, session.outputs = [(1,)], [[]]
    drafting = AheadDrafting(session)
    try:
        drafting.start([0], [DraftBudget(9, 9, 9)], [sent])
        drafting.wait()
        came = [rng.randrange(16) for _ in path] if not right else list(path)
        bonus = rng.choice([*ahead.token_ids, 3])
        drafted, kept = drafting.finish({0: [*came, bonus]})
        found = drafting.take()
    finally:
        drafting.close()

    assert drafted == ({0} if len(ahead) else set())
    node = ahead.children().get((ROOT, bonus)) if tuple(came) == path else None
    expected = None if node is None else ahead.below(node)
    if expected is None or not len(expected):
        assert (kept, found) == (set(), {})
    else:
        assert (kept, found) == ({0}, {0: expected})
    assert drafting.take() == {}


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (DraftTree(), ()),
        (DraftTree.chain([1, 2]), (1, 2)),
        (DraftTree((1, 2, 3, 4), (ROOT, ROOT, 0, 1), (0.3, 0.6, 0.2, 0.1)), (2, 4)),
        (DraftTree((1, 2, 3, 4), (ROOT, ROOT, 1, 0), (0.5, 0.5, 0.2, 0.1)), (1, 4)),
        (DraftTree((1, 2, 3), (ROOT, ROOT, 0)), (1, 3)),
    ],
)
def test_the_likeliest_path_is_guessed_and_of_equals_the_first(
    tree: DraftTree, expected: tuple[int, ...]
) -> None:
    assert likeliest_chain(tree).token_ids == expected
