"""What every gate must keep to; the contract is in ``specrag/gate/policy.py``."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Callable

import pytest

import specrag.gate
from specrag.gate.calibration import Calibration
from specrag.gate.policy import CalibratedGate, FixedGate, GateDecision, RetrievalGate
from specrag.gate.rules import rule_for
from specrag.gate.signals import GateSignals, LookupSignals
from specrag.retrieval.sentences import sentence_spans

KEYS = [
    "retrieve",
    "reason",
    "p_without",
    "p_with",
    "threshold",
    "zone",
    "signals",
    "fingerprint",
]
SURE = GateSignals(1.1, 1.0, 0.95, 0.9, 0.1, 1.0, 0.9, 0.99, 12.0, 16)
TORN = GateSignals(3.0, 2.5, 0.5, 0.4, 1.2, 0.6, 0.1, 0.4, 60.0, 16)
LOST = GateSignals(40.0, 30.0, 0.05, 0.1, 3.5, 0.1, 0.01, 0.05, 900.0, 16)
LOOKUPS = [LookupSignals(-1.0, 0.0), LookupSignals(0.45, 0.1), LookupSignals(0.9, 0.4)]


def calibrated() -> RetrievalGate:
    return CalibratedGate(
        Calibration(
            fitted_on={"target": "t"},
            features=("margin",),
            mean=(0.5,),
            scale=(0.2,),
            weights=(2.0,),
            intercept=0.0,
            confident_above=0.9,
            needed_below=0.1,
            min_score=0.45,
            num_labels=90,
        )
    )


def greeting() -> RetrievalGate:
    gate = rule_for("hello")
    assert gate is not None
    return gate


MAKERS: dict[str, Callable[[], RetrievalGate]] = {
    "always": lambda: FixedGate(True, "Mode always: the documents were asked."),
    "never": lambda: FixedGate(False, "Mode never: nothing was looked up."),
    "greeting": greeting,
    "calibrated": calibrated,
}
every_gate = pytest.mark.parametrize("name", MAKERS)
every_signals = pytest.mark.parametrize("signals", [SURE, TORN, LOST], ids=["sure", "torn", "lost"])


def decisions(gate: RetrievalGate, signals: GateSignals) -> list[GateDecision]:
    """The decision before a lookup, and all that a lookup can make of it."""
    first = gate.decide(signals if gate.reads_signals else None)
    return [first, *(gate.confirm(first, lookup) for lookup in LOOKUPS)]


def test_every_implementation_is_tried() -> None:
    for module in pkgutil.iter_modules(specrag.gate.__path__):
        importlib.import_module(f"specrag.gate.{module.name}")
    own = {
        kind for kind in RetrievalGate.__subclasses__() if kind.__module__.startswith("specrag.")
    }
    assert own == {type(make()) for make in MAKERS.values()}


@every_gate
@every_signals
def test_a_decision_depends_on_the_signals_alone(name: str, signals: GateSignals) -> None:
    gate = MAKERS[name]()
    first = decisions(gate, signals)
    decisions(gate, LOST)
    assert decisions(gate, signals) == decisions(MAKERS[name](), signals) == first


@every_gate
@every_signals
def test_a_decision_is_json_of_the_documented_keys(name: str, signals: GateSignals) -> None:
    for decision in decisions(MAKERS[name](), signals):
        content = decision.to_dict()
        assert list(content) == KEYS
        assert json.loads(json.dumps(content, allow_nan=False)) == content
        assert isinstance(content["retrieve"], bool)
        assert content["zone"] in ("confident", "unsure", "needed", "fixed")
        assert content["p_without"] is None or 0 <= content["p_without"] <= 1


@every_gate
@every_signals
def test_a_reason_is_one_sentence_with_its_figures(name: str, signals: GateSignals) -> None:
    gate = MAKERS[name]()
    for decision in decisions(gate, signals):
        reason = decision.reason
        assert sentence_spans(reason, 0, len(reason)) == [(0, len(reason))]
        assert reason[0].isupper()
        assert reason.endswith(".")
        if gate.reads_signals:
            assert len(re.findall(r"\d\.\d\d", reason)) >= 2


@every_gate
@every_signals
def test_the_zone_says_whether_to_look_up(name: str, signals: GateSignals) -> None:
    decision, *_ = decisions(MAKERS[name](), signals)
    expected = {"confident": False, "unsure": True, "needed": True}
    assert decision.retrieve is expected.get(decision.zone, decision.retrieve)


@every_gate
@every_signals
def test_a_lookup_changes_unsure_decisions_only(name: str, signals: GateSignals) -> None:
    before, *after = decisions(MAKERS[name](), signals)
    assert all(decision.zone == before.zone for decision in after)
    if before.zone != "unsure":
        assert after == [before] * len(LOOKUPS)


@every_gate
@every_signals
def test_a_decision_carries_the_fingerprint_of_its_gate(name: str, signals: GateSignals) -> None:
    gate = MAKERS[name]()
    assert {decision.fingerprint for decision in decisions(gate, signals)} == {gate.fingerprint}
    assert bool(gate.fingerprint) is gate.reads_signals


@every_signals
def test_the_calibrated_gate_reaches_every_zone(signals: GateSignals) -> None:
    expected = {SURE: "confident", TORN: "unsure", LOST: "needed"}
    assert calibrated().decide(signals).zone == expected[signals]


@every_gate
def test_a_gate_that_reads_no_signals_says_so(name: str) -> None:
    gate = MAKERS[name]()
    if gate.reads_signals:
        with pytest.raises(ValueError, match="signals"):
            gate.decide(None)
    else:
        decision = gate.decide(None)
        assert (decision.zone, decision.signals) == ("fixed", {})
