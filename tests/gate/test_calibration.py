"""Fitting on made-up questions, the file, and every way in which it can be damaged."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from specrag.errors import GateError
from specrag.gate.calibration import (
    FEATURES,
    Calibration,
    LabelledSignals,
    fingerprint_of,
    fit,
    vector,
)
from specrag.gate.signals import GateSignals

MakeSignals = Callable[..., GateSignals]
MakeCalibration = Callable[..., Calibration]
MakeRows = Callable[..., list[LabelledSignals]]
PARTS = {"target": "t", "drafter": "suffix", "prompt": "p", "draft_tokens": "16", "index": "i"}


@pytest.fixture(scope="session")
def make_rows(make_signals: MakeSignals) -> MakeRows:
    """Labelled questions whose kinds lie ``apart`` standard deviations from each other."""

    def make(apart: float, num_each: int = 40, seed: int = 0) -> list[LabelledSignals]:
        random = np.random.default_rng(seed)
        rows = []
        for number in range(2 * num_each):
            retrieve = number % 2 == 1
            sure = random.normal(0.0 if retrieve else apart)
            signals = make_signals(
                cross_model_perplexity=math.exp(1 - 0.5 * sure + 0.3 * random.normal()),
                margin=1 / (1 + math.exp(-sure)),
                entropy=math.exp(-sure),
                low_probability=random.uniform(),
                first_probability=random.uniform(),
                question_perplexity=math.exp(random.normal(4)),
                term_coverage=random.uniform(),
            )
            score = random.normal(0.6 if retrieve else 0.3, 0.15)
            rows.append(LabelledSignals(signals, retrieve, float(score)))
        return rows

    return make


def held_out(rows: list[LabelledSignals], seed: int) -> tuple[np.ndarray[Any, Any], ...]:
    """Probabilities of questions that need documents, and of those that need none."""
    table = np.stack([vector(row.signals, FEATURES) for row in rows])
    table = (table - table.mean(0)) / np.maximum(table.std(0), 1e-6)
    good = np.array([not row.retrieve for row in rows])
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    found = cross_val_predict(LogisticRegression(), table, good, cv=folds, method="predict_proba")
    return found[~good, 1], found[good, 1]


@pytest.mark.parametrize(
    ("apart", "seed", "max_missed", "max_wasted"),
    [
        (0.0, 0, 0.05, 0.05),
        (1.0, 1, 0.05, 0.05),
        (1.0, 2, 0.3, 0.1),
        (3.0, 0, 0.0, 0.0),
        (12.0, 0, 0.05, 0.05),
    ],
)
def test_the_thresholds_keep_their_shares_on_questions_not_seen(
    make_rows: MakeRows, apart: float, seed: int, max_missed: float, max_wasted: float
) -> None:
    rows = make_rows(apart, seed=seed)
    fitted = fit(rows, PARTS, max_missed=max_missed, max_wasted=max_wasted, seed=seed)
    needs, needs_none = held_out(rows, seed)

    # A hair's breadth for the order of summation; no two probabilities lie that close.
    missed = (needs >= fitted.confident_above + 1e-9).mean()
    wasted = (needs_none < fitted.needed_below - 1e-9).mean()
    assert missed <= max_missed
    assert wasted <= max_wasted
    assert fitted.needed_below <= fitted.confident_above
    # The thresholds are no stricter than they must be: one more question would be too many.
    assert (needs >= fitted.confident_above - 1e-9).mean() > max_missed
    reported = fitted.report
    assert reported["needs_documents_confident"] == pytest.approx(missed, abs=1e-4)
    assert reported["needs_none_needed"] == pytest.approx(wasted, abs=1e-4)


@pytest.mark.parametrize("apart", [0.0, 1.0, 3.0])
def test_the_area_under_the_curve_counts_pairs(make_rows: MakeRows, apart: float) -> None:
    rows = make_rows(apart)
    needs, needs_none = held_out(rows, 0)
    pairs = [(good > bad) + 0.5 * (good == bad) for good in needs_none for bad in needs]
    report = fit(rows, PARTS).report
    assert report["auroc"] == pytest.approx(np.mean(pairs), abs=1e-3)


@pytest.mark.parametrize("apart", [0.0, 1.0, 3.0])
def test_the_interval_of_the_area_is_that_of_hanley_and_mcneil(
    make_rows: MakeRows, apart: float
) -> None:
    report = fit(make_rows(apart, num_each=60), PARTS).report
    area = report["auroc"]
    one, two = area / (2 - area), 2 * area**2 / (1 + area)
    spread = area * (1 - area) + 59 * (one - area**2) + 59 * (two - area**2)
    assert report["auroc_low"] == pytest.approx(area - 1.96 * math.sqrt(spread) / 60, abs=0.025)


@pytest.mark.parametrize(("apart", "beats_chance"), [(0.0, False), (1.0, True), (12.0, True)])
def test_a_fit_to_noise_does_not_beat_chance(
    make_rows: MakeRows, apart: float, beats_chance: bool
) -> None:
    assert fit(make_rows(apart), PARTS).beats_chance is beats_chance


def test_separable_questions_are_told_apart(make_rows: MakeRows) -> None:
    rows = make_rows(12.0)
    fitted = fit(rows, PARTS)
    assert fitted.report["auroc"] > 0.99
    assert fitted.report["needs_none_confident"] > 0.9
    chances = [(fitted.p_without(row.signals), row.retrieve) for row in rows]
    assert all((chance < 0.5) is retrieve for chance, retrieve in chances)


def test_noise_saves_hardly_any_lookup(make_rows: MakeRows) -> None:
    assert fit(make_rows(0.0), PARTS).report["needs_none_confident"] < 0.3


def test_a_probability_of_one_does_not_pass_as_confident(make_signals: MakeSignals) -> None:
    """One question that needs documents looks surer than a float can say."""

    def signals(sure: float) -> GateSignals:
        changes = {"margin": sure, "entropy": -sure, "low_probability": sure}
        return make_signals(
            cross_model_perplexity=math.exp(-sure), first_probability=sure, **changes
        )

    rows = [
        LabelledSignals(signals((-1) ** n + 0.01 * (n % 7)), n % 2 == 1, 0.5) for n in range(100)
    ]
    rows[1] = LabelledSignals(signals(20.0), True, 0.5)
    fitted = fit(rows, PARTS, max_missed=0.0)
    assert fitted.report["needs_documents_confident"] == 0.0
    assert fitted.confident_above > 1.0


def test_a_fit_depends_on_rows_and_seed_alone(make_rows: MakeRows) -> None:
    rows = make_rows(1.0)
    assert fit(rows, PARTS, seed=3) == fit(rows, PARTS, seed=3)
    one, other = fit(rows, PARTS, seed=3), fit(rows, PARTS, seed=4)
    assert one.weights == other.weights
    assert one.report != other.report


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(-20, 20).map(lambda score: score / 20), min_size=20, max_size=40))
def test_the_score_threshold_makes_the_fewest_errors(
    make_signals: MakeSignals, scores: list[float]
) -> None:
    random = np.random.default_rng(len(scores))
    kinds = [n % 2 == 0 for n in range(len(scores))]
    rows = [
        LabelledSignals(make_signals(margin=random.uniform()), retrieve, score)
        for retrieve, score in zip(kinds, scores, strict=True)
    ]

    def errors(threshold: float) -> int:
        return sum((row.top_score >= threshold) != row.retrieve for row in rows)

    assert errors(fit(rows, PARTS).min_score) == min(errors(score) for score in scores)


@pytest.mark.parametrize(("num_documents", "num_none"), [(0, 0), (9, 30), (30, 9), (0, 30)])
def test_too_few_questions_of_a_kind_are_refused(
    make_signals: MakeSignals, num_documents: int, num_none: int
) -> None:
    rows = [
        LabelledSignals(make_signals(), retrieve, 0.5)
        for retrieve in [True] * num_documents + [False] * num_none
    ]
    counts = f"got {num_documents} that need documents and {num_none} that need none"
    with pytest.raises(GateError, match=counts) as caught:
        fit(rows, PARTS)
    assert caught.value.hint


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
@pytest.mark.parametrize("name", ["max_missed", "max_wasted"])
def test_a_share_outside_its_range_is_refused(make_rows: MakeRows, name: str, share: float) -> None:
    options: dict[str, Any] = {name: share}
    with pytest.raises(GateError, match=f"{name} must be from 0 to 1"):
        fit(make_rows(1.0), PARTS, **options)


def test_shares_of_one_still_give_thresholds(make_rows: MakeRows) -> None:
    fitted = fit(make_rows(1.0), PARTS, max_missed=1.0, max_wasted=1.0)
    assert 0 < fitted.needed_below <= fitted.confident_above < 1


finite = st.floats(-1e6, 1e6)


@given(weight=finite, intercept=finite, margin=st.floats(-1, 1))
def test_a_probability_lies_between_0_and_1(
    make_calibration: MakeCalibration,
    make_signals: MakeSignals,
    weight: float,
    intercept: float,
    margin: float,
) -> None:
    calibration = make_calibration(weights=(weight, 0.0), intercept=intercept)
    assert 0.0 <= calibration.p_without(make_signals(margin=margin)) <= 1.0


@given(weight=st.floats(-9, 9), margins=st.lists(st.floats(-1, 1), min_size=2, max_size=2))
def test_a_probability_grows_with_the_score(
    make_calibration: MakeCalibration,
    make_signals: MakeSignals,
    weight: float,
    margins: list[float],
) -> None:
    calibration = make_calibration(weights=(weight, 0.3), intercept=0.1)
    low, high = sorted(margins, key=lambda margin: weight * margin)
    below, above = (calibration.p_without(make_signals(margin=at)) for at in (low, high))
    assert below <= above


def test_a_probability_by_hand(
    make_calibration: MakeCalibration, make_signals: MakeSignals
) -> None:
    signals = make_signals(margin=0.75, perplexity=math.e**2)
    # (0.75 - 0.5) / 0.25 * 1.5 + (2 - 1) / 0.5 * -0.75 + 0.25 = 0.25
    assert make_calibration().p_without(signals) == pytest.approx(1 / (1 + math.exp(-0.25)))


def test_perplexities_count_by_their_logarithm(make_signals: MakeSignals) -> None:
    signals = make_signals(perplexity=math.e**3, margin=0.25)
    assert vector(signals, ["margin", "perplexity"]) == pytest.approx([0.25, 3.0])


def test_what_is_saved_is_what_is_loaded(make_rows: MakeRows, tmp_path: Path) -> None:
    fitted = fit(make_rows(1.0), PARTS)
    path = tmp_path / "gate.json"
    path.write_text("an older one")
    fitted.save(path)

    assert Calibration.load(path) == fitted
    assert [entry.name for entry in tmp_path.iterdir()] == ["gate.json"]


def test_the_fingerprint_depends_on_every_part() -> None:
    whole = fingerprint_of(PARTS)
    others = [{**PARTS, name: "other"} for name in PARTS]
    others += [{key: PARTS[key] for key in PARTS if key != name} for name in PARTS]
    assert len({whole, *map(fingerprint_of, others)}) == 1 + len(others)
    assert fingerprint_of(dict(reversed(PARTS.items()))) == whole


Damage = Callable[[dict[str, Any]], object]
DAMAGES: dict[str, tuple[Damage, str]] = {
    "another version": (lambda c: c.update(format_version=2), "format version 2"),
    "no version": (lambda c: c.pop("format_version"), "format version None"),
    "unknown key": (lambda c: c.update(weight=[1.0]), "'weight'; did you mean 'weights'"),
    "missing key": (lambda c: c.pop("min_score"), "missing or unknown key 'min_score'"),
    "unknown signal": (
        lambda c: c.update(features=["margin", "perplexty"]),
        "unknown signal 'perplexty'; did you mean 'perplexity'",
    ),
    "signal that is no name": (lambda c: c.update(features=[1, ["x"]]), "unknown signal 1"),
    "features as a text": (lambda c: c.update(features="margin"), "features must be"),
    "no features": (lambda c: c.update(features=[]), "features must be"),
    "nan": (lambda c: c.update(mean=[math.nan, 0.0]), "mean must be 2 finite numbers"),
    "infinite weight": (lambda c: c.update(weights=[0.0, math.inf]), "weights must be 2 finite"),
    "too few weights": (lambda c: c.update(weights=[1.0]), "weights must be 2 finite numbers"),
    "text for a number": (lambda c: c.update(weights=["1", 0.0]), "weights must be 2 finite"),
    "number for a list": (lambda c: c.update(mean=0.0), "mean must be 2 finite numbers"),
    "scale of zero": (lambda c: c.update(scale=[0.0, 1.0]), "scale must be above 0"),
    "infinite intercept": (lambda c: c.update(intercept=-math.inf), "intercept must be a finite"),
    "nan threshold": (lambda c: c.update(confident_above=math.nan), "confident_above must be"),
    "threshold missing": (lambda c: c.update(needed_below=None), "needed_below must be a finite"),
    "switch for a number": (lambda c: c.update(min_score=True), "min_score must be a finite"),
    "count as a text": (lambda c: c.update(num_labels="90"), "num_labels must be a finite"),
    "thresholds swapped": (
        lambda c: c.update(needed_below=0.9, confident_above=0.1),
        "needed_below 0.9 is above",
    ),
    "parts as a list": (lambda c: c.update(fitted_on=["t"]), "fitted_on must map"),
    "parts that are no text": (lambda c: c.update(fitted_on={"target": 1}), "fitted_on must map"),
    "report as a list": (lambda c: c.update(report=[1.0]), "report must map"),
    "infinite report": (lambda c: c.update(report={"auroc": math.inf}), "report must map"),
}


def assert_refused(path: Path, message: str) -> None:
    with pytest.raises(GateError) as caught:
        Calibration.load(path)
    assert message in caught.value.message
    assert str(path) in caught.value.message
    assert "specrag gate calibrate" in (caught.value.hint or "")


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_is_refused(
    make_calibration: MakeCalibration, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "gate.json"
    make_calibration().save(path)
    content = json.loads(path.read_text())
    damage, message = DAMAGES[name]
    damage(content)
    path.write_text(json.dumps(content))
    assert_refused(path, message)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"not json"])
def test_a_file_that_is_no_json_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "gate.json"
    path.write_bytes(content)
    assert_refused(path, "cannot read the calibration")


@pytest.mark.parametrize("content", ["[]", "1", "null", "{}"])
def test_json_that_is_no_calibration_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "gate.json"
    path.write_text(content)
    assert_refused(path, "format version None")


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    assert_refused(tmp_path / "none.json", "cannot read the calibration")
    assert_refused(tmp_path, "cannot read the calibration")
