"""Bootstrap intervals, held against a library and against what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from specrag.evaluation.metrics.figure import Figure
from specrag.evaluation.metrics.intervals import (
    FEWEST,
    Difference,
    interval,
    paired_difference,
    percentiles,
)

LAWS = settings(deadline=None, max_examples=60)
VALUES = st.lists(st.none() | st.floats(-100, 100), max_size=12)


@pytest.mark.parametrize("kind", ["shares", "times"])
@pytest.mark.parametrize("count", [20, 250])
def test_intervals_are_those_of_a_library(kind: str, count: int) -> None:
    random = np.random.default_rng(count)
    values = random.random(count) < 0.3 if kind == "shares" else random.lognormal(size=count)
    values = values.astype(float)
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    ours = interval(list(values), resamples=20_000)
    spread = theirs.high - theirs.low
    assert ours.value == pytest.approx(values.mean())
    assert ours.low == pytest.approx(theirs.low, abs=0.04 * spread)
    assert ours.high == pytest.approx(theirs.high, abs=0.04 * spread)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    random = np.random.default_rng(0)
    held = 0
    for seed in range(300):
        found = interval(list((random.random(100) < 0.4).astype(float)), seed)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0.4 <= found.high
    assert 0.90 <= held / 300 <= 0.985


@LAWS
@given(VALUES)
def test_an_interval_lies_about_the_mean_and_within_the_items(values: list[float | None]) -> None:
    found = interval(values)
    kept = [value for value in values if value is not None]
    assert found.num_items == len(kept)
    if not kept:
        assert found == Figure(None, None, None, 0)
        return
    assert found.value == pytest.approx(float(np.mean(kept)))
    assert found.low is not None
    assert found.high is not None
    assert min(kept) - 1e-9 <= found.low <= found.high <= max(kept) + 1e-9
    assert interval(kept) == found, "items without the measure must not count"


def test_one_item_is_its_own_interval() -> None:
    assert interval([None, 0.5]) == Figure(0.5, 0.5, 0.5, 1)


def test_the_seed_decides() -> None:
    values = list(np.random.default_rng(3).random(30))
    assert interval(values, 1) == interval(values, 1)
    assert interval(values, 1) != interval(values, 2)


def test_resamples_are_the_same_whatever_their_number_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = list(np.random.default_rng(3).random(30))
    whole = interval(values)
    monkeypatch.setattr("specrag.evaluation.metrics.intervals._CHUNK", 7)
    assert interval(values) == whole


def test_a_planted_shift_is_found_and_nothing_is_found_without() -> None:
    random = np.random.default_rng(0)
    false, found = 0, 0
    for seed in range(200):
        # Questions differ far more than the runs do: only pairs show it.
        first = random.normal(scale=10, size=60)
        noise = random.normal(scale=1, size=60)
        false += paired_difference(list(first), list(first + noise), seed).significant
        found += paired_difference(list(first), list(first + noise + 0.6), seed).significant
    assert false / 200 < 0.10
    assert found / 200 > 0.95


def test_the_difference_is_of_the_second_from_the_first_over_common_items() -> None:
    found = paired_difference([1.0, None, 3.0, 5.0], [2.0, 9.0, 5.0, None])
    assert found.difference == 1.5
    assert (found.low, found.high, found.num_items) == (1.0, 2.0, 2)
    assert paired_difference([None], [1.0]) == Difference(None, None, None, 0)
    assert not paired_difference([None], [1.0]).significant
    with pytest.raises(ValueError, match="shorter"):
        paired_difference([1.0, 2.0], [1.0])


@LAWS
@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=1, max_size=12))
def test_turning_the_runs_round_turns_the_difference(pairs: list[tuple[float, float]]) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    there, back = paired_difference(first, second), paired_difference(second, first)
    assert there.difference == pytest.approx(-(back.difference or 0.0))
    assert there.low == pytest.approx(-(back.high or 0.0))
    assert there.significant == back.significant


def test_a_handful_of_items_is_never_significant() -> None:
    for count in range(1, 10):
        found = paired_difference([0.0] * count, [1.0] * count)
        assert found.significant == (count >= FEWEST)
    # Fewest: all of one sign has to be rarer than one in twenty, by the sign test.
    assert stats.binomtest(FEWEST, FEWEST).pvalue <= 0.05 < stats.binomtest(5, FEWEST - 1).pvalue


def test_equal_runs_do_not_differ() -> None:
    assert not paired_difference([1.0] * 20, [1.0] * 20).significant


@LAWS
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30))
def test_percentiles_lie_in_order(values: list[float]) -> None:
    found = percentiles(values)
    assert found["mean"] == pytest.approx(float(np.mean(values)), abs=1e-3)
    told = [found[name] for name in ("p50", "p90", "p99")]
    assert all(value is not None for value in told)
    assert told == sorted(told, key=lambda value: value or 0.0)


def test_percentiles_by_hand() -> None:
    assert percentiles([float(at) for at in range(101)]) == {
        "mean": 50.0, "p50": 50.0, "p90": 90.0, "p99": 99.0,
    }  # fmt: skip
    assert percentiles([]) == {"mean": None, "p50": None, "p90": None, "p99": None}
