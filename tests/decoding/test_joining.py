"""Rows come and go between any two rounds, and each says what it says alone."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from specrag.decoding.budget import SpeculationConfig
from specrag.decoding.drafter import Drafter, DraftSession
from specrag.decoding.generator import Generation, SpeculativeGenerator
from specrag.decoding.row import DecodingRequest
from specrag.decoding.sampling import SamplingParams
from specrag.decoding.session import DecodingSession
from specrag.drafters.suffix import SuffixDrafter
from specrag.errors import ConfigError, InputError
from tests.decoding.scripts import (
    CONFIG,
    MODES,
    TOKENIZER,
    Answer,
    ScriptedDrafter,
    SilentDrafter,
    alone,
    answers,
    check_between_rounds,
    finish,
    knowing,
    open_session,
    request,
    target,
    truthful,
)


class Guest(NamedTuple):
    """A row: what it asks for, when it comes, and when it is cancelled."""

    asked: DecodingRequest
    arrival: int
    leaves: int = 99


@st.composite
def parties(draw: st.DrawFn, leave: bool = False) -> list[Guest]:
    numbers = draw(st.lists(st.integers(0, 40), min_size=1, max_size=5, unique=True))
    return [
        Guest(
            request(
                number, draw(st.sampled_from(list(MODES))), max_tokens=draw(st.integers(4, 14))
            ),
            draw(st.integers(0, 9)),
            draw(st.integers(0, 8)) if leave else 99,
        )
        for number in numbers
    ]


def play(party: Sequence[Guest]) -> tuple[DecodingSession, list[Guest]]:
    """Lets every row in at its round; returns the guests in the order of their rows."""
    left: dict[int, Answer] = {}
    waiting = sorted(party, key=lambda guest: guest.arrival)
    came = [guest for guest in waiting if guest.arrival == waiting[0].arrival]
    waiting = waiting[len(came) :]
    drafter = ScriptedDrafter(knowing([guest.asked for guest in party]))
    session = open_session(drafter, [guest.asked for guest in came])
    clock = came[0].arrival
    while waiting or not session.finished:
        while waiting and (waiting[0].arrival <= clock or session.finished):
            came.append(waiting.pop(0))
            assert session.add(came[-1].asked) == len(came) - 1
        for index, guest in enumerate(came):
            if guest.leaves + guest.arrival <= clock:
                kept = answers(session)[index]
                update = session.cancel(index)
                row = session.rows[index]
                assert update.token_ids == ()
                assert row.text == kept.text + update.text
                assert row.finish_reason == (kept.finish_reason or "cancelled")
                left[index] = answers(session)[index]
        check_between_rounds(session, drafter.sessions[0])
        if not session.finished:
            session.step()
            check_between_rounds(session, drafter.sessions[0])
        clock += 1
    # Nothing is added to a row that has left, were it still waiting for its prefill.
    assert all(answers(session)[index] == answer for index, answer in left.items())
    return session, came


@given(parties())
@example([Guest(request(3, max_tokens=4), 0), Guest(request(4), 9)])
@settings(max_examples=25, deadline=None)
def test_a_row_says_what_it_says_alone_whenever_it_joins(party: list[Guest]) -> None:
    session, came = play(party)

    for found, guest in zip(answers(session), came, strict=True):
        expected = alone(guest.asked)
        assert found == expected
        assert found.logprobs == pytest.approx(expected.logprobs, abs=1e-6)


@given(parties(leave=True))
@settings(max_examples=25, deadline=None)
def test_rows_can_be_cancelled_between_any_rounds(party: list[Guest]) -> None:
    session, came = play(party)

    for found, guest in zip(answers(session), came, strict=True):
        expected = alone(guest.asked)
        if found.finish_reason == "cancelled":
            count = len(found.token_ids)
            assert found.token_ids == expected.token_ids[:count]
            assert found.text == TOKENIZER.decode(found.token_ids)
        else:
            assert found == expected


def test_what_a_stop_string_held_back_is_shown_when_a_row_is_cancelled() -> None:
    whole = alone(request(8, max_tokens=12, ignore_eos=True)).text
    # Each letter might begin a stop string, so the last one is always held back.
    stops = tuple(f"{letter}~" for letter in sorted(set(whole)))
    asked = request(8, max_tokens=12, ignore_eos=True, stop=stops)
    session = open_session(SilentDrafter(), [asked])
    shown = "".join(session.step()[0].text for _ in range(5))
    update = session.cancel(0)

    assert len(update.text) == 1
    assert (
        shown + update.text == session.rows[0].text == TOKENIZER.decode(session.rows[0].token_ids)
    )
    assert whole.startswith(shown + update.text)
    assert (update.token_ids, update.finish_reason) == ((), "cancelled")
    assert session.cancel(0).text == ""


def test_a_session_whose_last_row_is_cancelled_takes_another() -> None:
    session = open_session(SilentDrafter(), [request(1), request(2)])
    session.cancel(0)
    session.step()
    session.cancel(1)
    assert session.finished
    session.add(request(3))

    assert finish(session)[2] == alone(request(3))
    assert [row.finish_reason for row in session.rows[:2]] == ["cancelled"] * 2
    assert [len(row.token_ids) for row in session.rows[:2]] == [0, 1]


class Closed(ScriptedDrafter):
    """A drafter of the first hour, whose sessions cannot grow."""

    def open(self, contexts: Sequence[object]) -> DraftSession:  # type: ignore[override]
        session = super().open(contexts)  # type: ignore[arg-type]
        session.join = lambda context: DraftSession.join(session, context)  # type: ignore[method-assign]
        return session


REFUSED = [
    (DecodingRequest((), SamplingParams()), InputError, "the prompt is empty"),
    (DecodingRequest((5,) * 512, SamplingParams()), InputError, "has 512 tokens; tiny-1 holds 512"),
    (request(1, logit_bias={99: 1.0}), ConfigError, "names token 99"),
]


@pytest.mark.parametrize(("asked", "error", "problem"), REFUSED)
@pytest.mark.parametrize("num_steps", [0, 1, 3])
def test_a_row_that_is_refused_leaves_the_session_as_it_was(
    num_steps: int, asked: DecodingRequest, error: type[Exception], problem: str
) -> None:
    others = [request(2), request(7)]
    drafter = ScriptedDrafter(knowing([*others, request(9)]))
    session = open_session(drafter, others)
    for _ in range(num_steps):
        session.step()
    before = answers(session)
    with pytest.raises(error, match=problem):
        session.add(asked)
    assert answers(session) == before
    check_between_rounds(session, drafter.sessions[0])

    assert session.add(request(9)) == 2
    assert finish(session) == [alone(each) for each in (*others, request(9))]


def test_a_drafter_that_cannot_grow_leaves_the_session_as_it_was() -> None:
    others = [request(2), request(7)]
    session = open_session(Closed(knowing(others)), others)
    session.step()
    with pytest.raises(ConfigError, match="ScriptedSession takes no further rows"):
        session.add(request(9))

    assert finish(session) == [alone(each) for each in others]


@pytest.mark.parametrize("drafter", [SuffixDrafter(), SilentDrafter()])
def test_a_generator_that_is_cancelled_says_what_it_has_so_far(drafter: Drafter) -> None:
    generator = SpeculativeGenerator(target(), TOKENIZER, drafter, CONFIG)
    params = SamplingParams(max_tokens=30, ignore_eos=True)
    whole = generator.generate([4, 5, 6], params)
    assert isinstance(whole, Generation)
    asked = iter([False, False, True])
    found = generator.generate([[4, 5, 6], [7, 8]], params, cancelled=lambda: next(asked))

    assert isinstance(found, list)
    assert [each.finish_reason for each in found] == ["cancelled"] * 2
    assert 3 <= len(found[0].token_ids) < 30
    assert found[0].token_ids == whole.token_ids[: len(found[0].token_ids)]
    assert found[0].text == TOKENIZER.decode(found[0].token_ids)
    assert next(asked, None) is None
    again = generator.generate([4, 5, 6], params, cancelled=threading.Event().is_set)
    assert isinstance(again, Generation)
    assert (again.token_ids, again.finish_reason) == (whole.token_ids, "length")


@pytest.mark.parametrize("optimistic", ["off", "on"])
@pytest.mark.parametrize("num_updates", [1, 3])
def test_a_stream_closed_early_leaves_nothing_behind(num_updates: int, optimistic: str) -> None:
    asked = request(3, max_tokens=12, ignore_eos=True)
    drafter = ScriptedDrafter(truthful([asked, request(4)]))
    config = SpeculationConfig(2, branching=1, optimistic=optimistic)
    generator = SpeculativeGenerator(target(), TOKENIZER, drafter, config)
    stream = generator.stream(asked.prompt_ids, asked.params)
    for _ in range(num_updates):
        next(stream)
    stream.close()  # type: ignore[attr-defined]

    assert drafter.sessions[0].num_closed == 1
    assert not [t for t in threading.enumerate() if t.name.startswith("specrag-draft")]
    found = generator.generate(request(4).prompt_ids, request(4).params)
    assert isinstance(found, Generation)
    assert found.token_ids == alone(request(4)).token_ids
