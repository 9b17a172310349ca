"""Accuracy over the share of questions that are looked up: the gate beside what it must beat.

The curve of a score looks up the questions with the highest scores first. The gain captured is
the area of a curve above that of looking up at random, as a share of what the oracle's order has:
0 is chance, 1 is perfect, and below 0 a coin would do better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from specrag.evaluation.datasets.item import EvalItem
from specrag.evaluation.metrics.intervals import bounds, interval
from specrag.evaluation.qa.answers import Raw
from specrag.evaluation.qa.decisions import paired, signals_of
from specrag.evaluation.qa.records import Record
from specrag.gate.policy import GateDecision

_RESAMPLES = 500
_POINTS = 21  # of a curve in the report
_BINS = 10

Array = np.ndarray[Any, np.dtype[np.float64]]


def gate_figures(
    items: Sequence[EvalItem],
    raws: Sequence[Raw],
    records: Sequence[Record],
    decisions: Mapping[str, GateDecision],
    measure: str,
    seed: int = 0,
) -> dict[str, Any] | None:
    """Returns all figures of the gate on one run, as plain data.

    Args:
        items: The questions.
        raws: Their answers in both branches.
        records: Of all modes.
        decisions: The gate's, by question.
        measure: What counts as accuracy.
        seed: Of the intervals.

    Returns:
        None where the set has no accuracy.
    """
    kept = {(record["id"], record["mode"]): record["scores"][measure] for record in records}
    never = [kept[item.id, "never"] for item in items]
    always = [kept[item.id, "always"] for item in items]
    if any(value is None for value in (*never, *always)):
        return None
    closed, opened = np.array(never, dtype=np.float64), np.array(always, dtype=np.float64)
    scores = _scores(items, raws, decisions)
    scores["oracle"] = opened - closed
    curves = {name: _curve(score, closed, opened) for name, score in scores.items()}
    rates = np.linspace(0, 1, len(items) + 1)
    curves["random"] = closed.mean() + (opened.mean() - closed.mean()) * rates
    found: dict[str, Any] = {
        "measure": measure,
        "curves": {name: _thinned(curve) for name, curve in curves.items()},
        "points": _points(items, records, decisions, measure, seed),
        "area": {name: _rounded(_area(curve)) for name, curve in curves.items()},
        "gain_captured": {
            name: _gain(score, closed, opened, seed)
            for name, score in scores.items()
            if name != "oracle"
        },
        "auroc": {
            name: {
                "wrong": _auroc(closed < 1, score),
                "helps": _auroc(opened > closed, score),
            }
            for name, score in scores.items()
            if name != "oracle"
        },
        "helps": _rounded(float((opened > closed).mean())),
        "hurts": _rounded(float((opened < closed).mean())),
    }
    return found | _reliability(items, decisions, closed)


def _scores(
    items: Sequence[EvalItem], raws: Sequence[Raw], decisions: Mapping[str, GateDecision]
) -> dict[str, Array]:
    """Scores that are higher the more a question seems to need documents."""
    pairs = paired(raws)
    signals = [signals_of(pairs[item.id][0]) for item in items]
    found = {
        "perplexity": [signal.perplexity for signal in signals],
        "margin": [-signal.margin for signal in signals],
        "entropy": [signal.entropy for signal in signals],
        "low_probability": [-signal.low_probability for signal in signals],
        "question_length": [float(len(item.question.split())) for item in items],
    }
    sure = [decisions[item.id].p_without for item in items]
    if all(value is not None for value in sure):
        found["gate"] = [-value for value in sure if value is not None]
    rare = [item.metadata.get("popularity") for item in items]
    if all(isinstance(value, float) for value in rare):
        found["popularity"] = [-float(value) for value in rare if value is not None]
    return {name: np.array(values, dtype=np.float64) for name, values in found.items()}


def _curve(score: Array, closed: Array, opened: Array) -> Array:
    """Returns the accuracy with none, one, two ... questions looked up.

    Questions of equal score come in by turns: which goes first must not depend on the file.
    """
    order = np.argsort(-score, kind="stable")
    gains = (opened - closed)[order]
    ordered = score[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    sizes = np.diff(np.r_[starts, len(ordered)])
    means = np.repeat(np.add.reduceat(gains, starts) / sizes, sizes)
    curve: Array = closed.mean() + np.r_[0.0, np.cumsum(means)] / len(score)
    return curve


def _area(curve: Array) -> float:
    return float(np.trapezoid(curve, dx=1 / (len(curve) - 1)))


def _gain(score: Array, closed: Array, opened: Array, seed: int) -> dict[str, float | None]:
    value = _captured(score, closed, opened)
    random = np.random.default_rng(seed)
    resampled = []
    for _ in range(_RESAMPLES):
        pick = random.integers(len(score), size=len(score))
        found = _captured(score[pick], closed[pick], opened[pick])
        if found is not None:
            resampled.append(found)
    low, high = bounds(np.array(resampled)) if resampled else (None, None)
    return {"value": _rounded(value), "low": _rounded(low), "high": _rounded(high)}


def _captured(score: Array, closed: Array, opened: Array) -> float | None:
    chance = (closed.mean() + opened.mean()) / 2
    most = _area(_curve(opened - closed, closed, opened)) - chance
    if most < 1e-12:
        return None  # retrieval changes nothing, so there is nothing to capture
    return float((_area(_curve(score, closed, opened)) - chance) / most)


def _auroc(truth: np.ndarray[Any, np.dtype[np.bool_]], score: Array) -> float | None:
    if truth.all() or not truth.any():
        return None
    return round(float(roc_auc_score(truth, score)), 6)


def _points(
    items: Sequence[EvalItem],
    records: Sequence[Record],
    decisions: Mapping[str, GateDecision],
    measure: str,
    seed: int,
) -> dict[str, Any]:
    retrieved = float(np.mean([decisions[item.id].retrieve for item in items]))
    rates = {"never": 0.0, "always": 1.0, "auto": retrieved}
    found = {}
    for mode, rate in rates.items():
        values = [record["scores"][measure] for record in records if record["mode"] == mode]
        if values:
            accuracy = interval(values, seed).to_dict()
            found[mode] = {"retrieval_rate": _rounded(rate), "accuracy": accuracy}
    return found


def _reliability(
    items: Sequence[EvalItem], decisions: Mapping[str, GateDecision], closed: Array
) -> dict[str, Any]:
    """Holds the gate's probability that closed book is good against how often it was."""
    sure = [decisions[item.id].p_without for item in items]
    if any(value is None for value in sure):
        return {"reliability": [], "ece": None}
    predicted = np.array(sure, dtype=np.float64)
    rows = [
        {
            "predicted": _rounded(float(predicted[part].mean())),
            "observed": _rounded(float(closed[part].mean())),
            "num_items": len(part),
        }
        for part in np.array_split(np.argsort(predicted, kind="stable"), min(_BINS, len(items)))
    ]
    gaps = [abs(row["predicted"] - row["observed"]) * row["num_items"] for row in rows]
    return {"reliability": rows, "ece": _rounded(sum(gaps) / len(items))}


def _thinned(curve: Array) -> list[list[float]]:
    rates = np.linspace(0, 1, min(_POINTS, len(curve)))
    values = np.interp(rates, np.linspace(0, 1, len(curve)), curve)
    pairs = zip(rates.tolist(), values.tolist(), strict=True)
    return [[round(rate, 4), round(value, 6)] for rate, value in pairs]


def _rounded(value: float | None) -> Any:
    return None if value is None else round(value, 6)
