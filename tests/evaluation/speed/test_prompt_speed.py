"""Medians over rounds, and where an answer leaves plain decoding."""

from __future__ import annotations

import pytest

from specrag.evaluation.speed.arm import Sample
from specrag.evaluation.speed.measure import DecodedPrompt
from specrag.evaluation.speed.prompt_speed import FirstDifference, prompt_speed
from tests.evaluation.speed.scripted import counted, prompt

END = 0
PLAIN = (5, 6, 7, END)
MARGINS = (0.4, 0.03, 0.2, 0.1)


def sample(tokens: tuple[int, ...], ms: float = 1.0, *, own: bool = True) -> Sample:
    return Sample(tokens, ms / 10, ms, stats=counted(1) if own else None)


def decoded(
    *answers: Sample, plain: Sample | None = None, seen: tuple[int, ...] = PLAIN
) -> DecodedPrompt:
    looked = Sample(seen, 1.0, 1.0, margins=MARGINS[: len(seen)])
    return DecodedPrompt(prompt(1), looked, {"a": [plain or sample(PLAIN)], "b": list(answers)})


@pytest.mark.parametrize(
    ("times", "median"), [([9.0, 1.0, 4.0], 4.0), ([8.0, 2.0], 5.0), ([3.0], 3.0)]
)
def test_times_are_medians_over_the_rounds(times: list[float], median: float) -> None:
    found = prompt_speed(decoded(*(sample(PLAIN, ms) for ms in times)), "b", "a")
    assert found.decode_ms == median
    assert found.prefill_ms == pytest.approx(median / 10)
    assert found.total_ms == pytest.approx(median * 1.1)
    assert found.tokens_per_second == pytest.approx(3e3 / median)


def test_counters_are_of_the_round_of_median_time() -> None:
    rounds = [
        Sample(PLAIN, None, ms, stats=counted(*accepted), mean_acceptance_length=ms)
        for ms, accepted in [(9.0, (0,)), (4.0, (2,)), (1.0, (1, 1))]
    ]
    found = prompt_speed(decoded(*rounds), "b", "a")
    assert found.stats == counted(2)
    assert found.mean_acceptance_length == 4.0
    assert found.prefill_ms is None
    assert found.total_ms is None


def test_passes_of_all_rounds_are_kept() -> None:
    rounds = [Sample(PLAIN, 1.0, 3.0, (ms, ms + 1), (2, 1)) for ms in (1.0, 5.0)]
    steps = prompt_speed(decoded(*rounds), "b", "a").steps
    assert steps == ((1.0, 2), (2.0, 1), (5.0, 2), (6.0, 1))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (PLAIN, None),
        ((9, 6, 7, END), (0, 0.4, (5, 9))),
        ((5, 8, 7, END), (1, 0.03, (6, 8))),
        ((5, 8, 9, END), (1, 0.03, (6, 8))),
        ((5, 6, 7, 9), (3, 0.1, (END, 9))),
        ((5, 6), (2, 0.2, (7, None))),
        ((5, 6, 7, END, 3), (4, None, (None, 3))),
    ],
)
def test_the_first_difference_has_its_place_and_margin(
    answer: tuple[int, ...], expected: tuple[int, float, tuple[int, int]] | None
) -> None:
    found = prompt_speed(decoded(sample(answer)), "b", "a", {END}).difference
    assert found == (None if expected is None else FirstDifference("q1", *expected))


def test_every_round_must_be_equal() -> None:
    rounds = [sample(PLAIN), sample((5, 6, 9, END)), sample((8, 6, 7, END))]
    found = prompt_speed(decoded(*rounds), "b", "a").difference
    assert found == FirstDifference("q1", 2, 0.2, (7, 9))


@pytest.mark.parametrize(
    ("answer", "position"),
    [((5, 6, 7, 9), None), ((5, 6, 9, 9), 2), ((5, 6), 2), ((5, 6, 7), None)],
)
def test_other_engines_may_be_unable_to_end_a_fixed_length(
    answer: tuple[int, ...], position: int | None
) -> None:
    found = prompt_speed(decoded(sample(answer, own=False)), "b", "a", {END}).difference
    assert (found.position if found else None) == position
    # Without an end token at the end, every token counts.
    strict = prompt_speed(decoded(sample((5, 6, 7, 9), own=False)), "b", "a", {1}).difference
    assert strict is not None
    assert strict.position == 3


def test_a_margin_of_another_text_is_not_told() -> None:
    """Looking is a pass of its own; where it took another way, its margins say nothing."""
    other = decoded(sample((5, 6, 9, END)), seen=(5, 3, 7, END))
    found = prompt_speed(other, "b", "a").difference
    assert found == FirstDifference("q1", 2, None, (7, 9))


def test_an_answer_of_one_token_has_no_speed() -> None:
    found = prompt_speed(decoded(Sample((5,), 1.0, 0.0), plain=sample((5,))), "b", "a")
    assert found.tokens_per_second is None
