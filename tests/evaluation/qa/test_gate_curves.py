"""Curves against slow sums, and the gains of orders whose gain is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.evaluation.qa.gate_curves import Array, _area, _captured, _curve

outcomes = st.lists(
    st.tuples(st.booleans(), st.booleans(), st.floats(-3, 3)), min_size=2, max_size=30
)


def parts(rows: list[tuple[bool, bool, float]]) -> tuple[Array, ...]:
    closed, opened, score = (
        np.array(column, dtype=np.float64) for column in zip(*rows, strict=True)
    )
    return score, closed, opened


@settings(deadline=None, max_examples=80)
@given(outcomes)
def test_a_curve_is_the_mean_over_all_ways_to_break_ties(
    rows: list[tuple[bool, bool, float]],
) -> None:
    score, closed, opened = parts(rows)
    dice = np.random.default_rng(0)
    curves = []
    for _ in range(400):
        order = np.lexsort((dice.random(len(score)), -score))
        mixed = [closed.mean()]
        for count in range(1, len(score) + 1):
            taken = np.zeros(len(score), dtype=bool)
            taken[order[:count]] = True
            mixed.append(np.where(taken, opened, closed).mean())
        curves.append(mixed)
    assert _curve(score, closed, opened) == pytest.approx(np.mean(curves, axis=0), abs=0.12)


@settings(deadline=None, max_examples=80)
@given(outcomes)
def test_no_order_beats_the_oracle_and_a_constant_gains_nothing(
    rows: list[tuple[bool, bool, float]],
) -> None:
    score, closed, opened = parts(rows)
    best = _area(_curve(opened - closed, closed, opened))
    assert _area(_curve(score, closed, opened)) <= best + 1e-9
    gained = _captured(score, closed, opened)
    if gained is None:
        assert (opened == closed).all() or len(set(opened - closed)) == 1
        return
    assert gained <= 1 + 1e-9
    assert _captured(opened - closed, closed, opened) == pytest.approx(1)
    assert _captured(np.zeros(len(score)), closed, opened) == pytest.approx(0, abs=1e-9)
    assert _captured(closed - opened, closed, opened) == pytest.approx(-1)
