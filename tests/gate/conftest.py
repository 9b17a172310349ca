"""Signals and calibrations with one thing changed at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from specrag.gate.calibration import Calibration
from specrag.gate.signals import GateSignals

MakeSignals = Callable[..., GateSignals]
MakeCalibration = Callable[..., Calibration]


@pytest.fixture(scope="session")
def make_signals() -> MakeSignals:
    """Signals of a middling draft; any of them can be given."""

    def make(**changes: Any) -> GateSignals:
        values: dict[str, Any] = {
            "cross_model_perplexity": 3.0,
            "perplexity": 2.0,
            "margin": 0.4,
            "overlap": 0.5,
            "entropy": 1.0,
            "acceptance": 0.6,
            "low_probability": 0.1,
            "first_probability": 0.3,
            "question_perplexity": 40.0,
            "num_tokens": 16,
            "term_coverage": 0.7,
        }
        return GateSignals(**{**values, **changes})

    return make


@pytest.fixture(scope="session")
def make_calibration() -> MakeCalibration:
    """A calibration of two features; any of its fields can be given."""

    def make(**changes: Any) -> Calibration:
        values: dict[str, Any] = {
            "fitted_on": {"target": "t", "index": "i"},
            "features": ("margin", "perplexity"),
            "mean": (0.5, 1.0),
            "scale": (0.25, 0.5),
            "weights": (1.5, -0.75),
            "intercept": 0.25,
            "confident_above": 0.8,
            "needed_below": 0.2,
            "min_score": 0.5,
            "num_labels": 90,
            "report": {"auroc": 0.9},
        }
        return Calibration(**{**values, **changes})

    return make
