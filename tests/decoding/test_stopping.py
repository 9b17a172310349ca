"""The end of an answer against an oracle that always looks at the whole text."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.decoding.detokenizer import Detokenizer
from specrag.decoding.sampling import SamplingParams
from specrag.decoding.stopping import FinishReason, StopChecker
from specrag.models.tokenizer import Tokenizer

PIECES = ["<eos>", "a", "b", "ab", "ba", "abc", "", "c", "\u4e2d"]
EOS = 0


class Words(Tokenizer):
    """Token ``i`` is the text ``PIECES[i]``; the end token has none."""

    def __init__(self) -> None:
        super().__init__(None)

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(PIECES[token] for token in token_ids if token != EOS)


def checker(params: SamplingParams, room: int = 1000) -> StopChecker:
    return StopChecker(params, [EOS], Detokenizer(Words()), room)


def ids(*pieces: str) -> list[int]:
    return [PIECES.index(piece) for piece in pieces]


def stream(params: SamplingParams, tokens: Sequence[int]) -> tuple[list[str], FinishReason | None]:
    """What each token shows, up to the end."""
    found = checker(params)
    shown = []
    for token in tokens:
        if found.finish_reason:
            break
        shown.append(found.push([token])[1])
    return shown, found.finish_reason


def first_stop(text: str, stops: Sequence[str], exempt: int = 0) -> int | None:
    """Where the first stop string begins that ends behind the exempt characters."""
    places = [
        at
        for at in range(len(text))
        for stop in stops
        if text.startswith(stop, at) and at + len(stop) > exempt
    ]
    return min(places, default=None)


def undecided(text: str, stops: Sequence[str]) -> int:
    """Characters at the end that may still become a stop string."""
    sizes = [n for n in range(len(text) + 1) for s in stops if n < len(s) and text.endswith(s[:n])]
    return max(sizes, default=0)


def expected_stream(params: SamplingParams, tokens: Sequence[int]) -> tuple[str, str | None, int]:
    """Text shown, reason and number of tokens by the definition, on the whole text each time."""
    for count in range(1, len(tokens) + 1):
        text = Words().decode(tokens[:count])
        exempt = len(Words().decode(tokens[: params.min_tokens]))
        end = first_stop(text, params.stop, exempt)
        if end is not None and count > params.min_tokens:
            return text[:end], "stop", count
        if tokens[count - 1] == EOS and not params.ignore_eos:
            return text, "stop", count
        if count == params.max_tokens:
            return text, "length", count
    text = Words().decode(tokens)
    return text[: len(text) - undecided(text, params.stop)], None, len(tokens)


stops = st.lists(st.text("abc\u4e2d", min_size=1, max_size=4), max_size=3).map(tuple)
runs = st.lists(st.lists(st.integers(0, len(PIECES) - 1), min_size=1, max_size=4), max_size=6)


@given(
    stop=stops,
    rounds=runs,
    max_tokens=st.integers(1, 14),
    min_tokens=st.integers(0, 8),
    ignore_eos=st.booleans(),
)
@settings(max_examples=400, deadline=None)
def test_any_stream_is_what_the_definition_says(
    stop: tuple[str, ...],
    rounds: list[list[int]],
    max_tokens: int,
    min_tokens: int,
    ignore_eos: bool,
) -> None:
    params = SamplingParams(
        stop=stop,
        max_tokens=max_tokens,
        min_tokens=min(min_tokens, max_tokens),
        ignore_eos=ignore_eos,
    )
    found, shown, taken = checker(params), "", 0
    for tokens in rounds:
        if found.finish_reason:
            break
        assert found.tokens_left == max_tokens - taken
        count, text = found.push(tokens)
        taken += count
        shown += text
    expected = expected_stream(params, [token for tokens in rounds for token in tokens])

    assert (shown, found.finish_reason, taken) == expected
    assert found.num_tokens == taken
    if found.finish_reason:
        assert found.tokens_left == 0


@pytest.mark.parametrize(
    ("stop", "pieces", "shown", "reason"),
    [
        (("bab",), ("a", "ba", "b"), ["a", "", ""], "stop"),  # over a border
        (("bab",), ("a", "ba", "c"), ["a", "", "bac"], None),  # a false beginning is released
        (("c", "ba"), ("a", "b", "ab"), ["a", "", ""], "stop"),  # the second of two
        (("bc", "abc"), ("abc",), [""], "stop"),  # the one that begins first
        (("aab",), ("a", "a", "a", "b"), ["", "", "a", ""], "stop"),  # a beginning inside another
        (("b",), ("abc", "c"), ["a"], "stop"),  # inside a token: the rest of it goes too
        (("ab",), ("a", "", "b"), ["", "", ""], "stop"),  # over a token without text
        (("ab",), ("a", "<eos>"), ["", "a"], "stop"),  # the end token releases what was held
        ((), ("a", "<eos>", "b"), ["a", ""], "stop"),
        (("\u4e2d",), ("a", "\u4e2d"), ["a", ""], "stop"),
    ],
)
def test_examples(
    stop: tuple[str, ...], pieces: tuple[str, ...], shown: list[str], reason: str | None
) -> None:
    assert stream(SamplingParams(stop=stop), ids(*pieces)) == (shown, reason)


@pytest.mark.parametrize(
    ("stop", "pieces", "shown", "reason"),
    [
        (("ab",), ("c", "a", "b"), ["c", "", ""], "stop"),  # ends with the very last token
        (("abc",), ("c", "a", "b"), ["c", "", "ab"], "length"),  # would have gone on
        ((), ("c", "a", "b", "c"), ["c", "a", "b"], "length"),
        ((), ("c", "a", "<eos>"), ["c", "a", ""], "stop"),
    ],
)
def test_the_last_allowed_token_may_still_stop_the_answer(
    stop: tuple[str, ...], pieces: tuple[str, ...], shown: list[str], reason: str
) -> None:
    assert stream(SamplingParams(stop=stop, max_tokens=3), ids(*pieces)) == (shown, reason)


def test_an_end_inside_an_accepted_run_cuts_it() -> None:
    found = checker(SamplingParams())

    assert found.push(ids("a", "b", "<eos>", "c", "c")) == (3, "ab")
    assert found.finish_reason == "stop"


def test_the_most_tokens_may_end_in_the_middle_of_a_run() -> None:
    found = checker(SamplingParams(max_tokens=3))
    found.push(ids("a"))

    assert found.push(ids("b", "c", "a")) == (2, "bc")
    assert found.finish_reason == "length"


def test_a_stop_token_ends_the_answer_and_shows_no_text() -> None:
    found = checker(SamplingParams(stop_token_ids=tuple(ids("ba")), ignore_eos=True))

    assert found.push(ids("a", "<eos>", "b", "ba", "c")) == (4, "ab")
    assert found.finish_reason == "stop"


@pytest.mark.parametrize(
    ("min_tokens", "stop", "pieces", "shown", "reason"),
    [
        (2, ("ab",), ("ab", "c", "ab"), ["ab", "c", ""], "stop"),  # the first one came too early
        (2, ("ab",), ("a", "b", "c", "a"), ["", "ab", "c", ""], None),
        (2, ("abc",), ("a", "b", "c"), ["", "", ""], "stop"),  # completed by the third
        (2, ("b", "bc"), ("a", "b", "c"), ["a", "", ""], "stop"),  # the b alone came too early
        (1, ("aa",), ("a", "a", "a"), ["", ""], "stop"),
        (2, ("aa",), ("a", "a", "a"), ["", "a", ""], "stop"),  # overlaps one that came too early
        (3, ("ab",), ("c", "a", "b"), ["c", "", "ab"], "length"),
    ],
)
def test_a_stop_string_counts_once_the_fewest_tokens_are_there(
    min_tokens: int,
    stop: tuple[str, ...],
    pieces: tuple[str, ...],
    shown: list[str],
    reason: str | None,
) -> None:
    most = 3 if reason == "length" else 9
    params = SamplingParams(stop=stop, min_tokens=min_tokens, max_tokens=most)

    assert stream(params, ids(*pieces)) == (shown, reason)


@pytest.mark.parametrize("token", ["ba", "c", "\u4e2d"])
def test_each_of_several_stop_tokens_ends_the_answer(token: str) -> None:
    found = checker(SamplingParams(stop_token_ids=tuple(ids("ba", "c", "\u4e2d"))))

    assert found.push(ids("a", "b", token, "a")) == (3, "ab")
    assert found.finish_reason == "stop"


def test_a_cancelled_row_shows_what_was_held_back_and_ends() -> None:
    found = checker(SamplingParams(stop=("abc",)))
    found.push(ids("c", "ab"))

    assert found.cancel() == "ab"
    assert (found.finish_reason, found.tokens_left, found.num_tokens) == ("cancelled", 0, 2)
    assert found.cancel() == ""


def test_a_row_that_has_ended_cannot_be_cancelled() -> None:
    found = checker(SamplingParams(stop=("ab",)))
    found.push(ids("ab"))

    assert found.cancel() == ""
    assert found.finish_reason == "stop"


def test_the_end_token_can_be_ignored() -> None:
    found = checker(SamplingParams(ignore_eos=True))

    assert found.push(ids("a", "<eos>", "b")) == (3, "ab")
    assert found.finish_reason is None


@pytest.mark.parametrize(("room", "max_tokens", "left"), [(2, 9, 2), (9, 2, 2), (5, 5, 5)])
def test_the_context_ends_an_answer_as_the_most_tokens_do(
    room: int, max_tokens: int, left: int
) -> None:
    found = checker(SamplingParams(max_tokens=max_tokens), room)

    assert found.tokens_left == left
    taken, _ = found.push(ids(*["a"] * 9))
    assert (taken, found.finish_reason) == (left, "length")


def test_a_stop_string_that_came_too_early_is_shown_at_once() -> None:
    found = checker(SamplingParams(stop=("b", "aa"), min_tokens=1))

    assert found.push([2]) == (1, "b")
