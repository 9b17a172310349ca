"""The three zones at their exact borders, and what a lookup changes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import pytest

from specrag.gate.calibration import Calibration
from specrag.gate.policy import CalibratedGate, FixedGate, GateDecision, Zone
from specrag.gate.signals import GateSignals, LookupSignals

MakeSignals = Callable[..., GateSignals]
MakeCalibration = Callable[..., Calibration]


def just_above(value: float) -> float:
    return math.nextafter(value, math.inf)


@pytest.fixture
def p_without(make_calibration: MakeCalibration, make_signals: MakeSignals) -> float:
    """The probability that the calibration gives to the signals, whatever its thresholds."""
    return make_calibration().p_without(make_signals())


@pytest.fixture
def unsure(make_calibration: MakeCalibration, make_signals: MakeSignals) -> GateDecision:
    decision = CalibratedGate(make_calibration()).decide(make_signals())
    assert decision.zone == "unsure"
    return decision


@pytest.mark.parametrize(
    ("confident_step", "needed_step", "zone", "retrieve"),
    [
        (0, 0, "confident", False),  # at the threshold itself
        (1, 0, "unsure", True),  # just below "confident", not below "needed"
        (1, 1, "needed", True),
    ],
)
def test_zones_at_the_exact_thresholds(
    make_calibration: MakeCalibration,
    make_signals: MakeSignals,
    p_without: float,
    confident_step: int,
    needed_step: int,
    zone: Zone,
    retrieve: bool,
) -> None:
    calibration = make_calibration(
        confident_above=just_above(p_without) if confident_step else p_without,
        needed_below=just_above(p_without) if needed_step else p_without,
    )
    decision = CalibratedGate(calibration).decide(make_signals())

    assert (decision.zone, decision.retrieve) == (zone, retrieve)
    held_against = calibration.needed_below if zone == "needed" else calibration.confident_above
    assert decision.threshold == round(held_against, 4)
    assert decision.p_without == round(p_without, 4)
    assert decision.p_with is None
    assert f"{p_without:.2f}" in decision.reason
    assert f"{held_against:.2f}" in decision.reason


def test_a_decision_shows_every_signal(
    make_calibration: MakeCalibration, make_signals: MakeSignals
) -> None:
    signals = make_signals(margin=0.123456)
    decision = CalibratedGate(make_calibration()).decide(signals)
    assert decision.signals == {**signals.to_dict(), "margin": 0.1235}
    assert decision.fingerprint == make_calibration().fingerprint != ""


def test_a_calibrated_gate_needs_signals(make_calibration: MakeCalibration) -> None:
    with pytest.raises(ValueError, match="needs signals"):
        CalibratedGate(make_calibration()).decide(None)


@pytest.mark.parametrize(
    ("top_score", "used"), [(0.5, True), (math.nextafter(0.5, 0), False), (1.0, True), (-1, False)]
)
def test_the_scores_of_an_unsure_lookup_decide(
    make_calibration: MakeCalibration, unsure: GateDecision, top_score: float, used: bool
) -> None:
    lookup = LookupSignals(top_score, 0.1)
    gate = CalibratedGate(make_calibration(min_score=0.5))
    decision = gate.confirm(unsure, lookup)

    assert decision.retrieve is used
    assert decision.zone == "unsure"
    assert decision.threshold == 0.5
    assert decision.signals == {**unsure.signals, **lookup.to_dict()}
    assert ("not used" in decision.reason) is not used
    assert decision.p_without == unsure.p_without


@pytest.mark.parametrize("zone", ["confident", "needed", "fixed"])
@pytest.mark.parametrize("top_score", [-1.0, 1.0])
def test_a_lookup_changes_no_other_decision(
    make_calibration: MakeCalibration, unsure: GateDecision, zone: Zone, top_score: float
) -> None:
    decision = dataclasses.replace(unsure, zone=zone, retrieve=zone != "confident")
    gate = CalibratedGate(make_calibration())
    assert gate.confirm(decision, LookupSignals(top_score, 0.0)) is decision


@pytest.mark.parametrize("retrieve", [True, False])
def test_a_fixed_gate_decides_as_it_was_told(make_signals: MakeSignals, retrieve: bool) -> None:
    gate = FixedGate(retrieve, "Because a test says so.")
    expected = GateDecision(retrieve, "fixed", "Because a test says so.")
    assert gate.decide(None) == gate.decide(make_signals()) == expected
    assert gate.confirm(expected, LookupSignals(-1.0, 0.0)) == expected
