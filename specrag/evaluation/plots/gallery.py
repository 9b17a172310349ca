"""Which pictures a report has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from specrag.evaluation.plots import qa, speed

Picture = Callable[[Mapping[str, Any]], Any]

PICTURES: Mapping[str, Mapping[str, Picture]] = {
    "qa": {
        "accuracy_retrieval": qa.accuracy_retrieval,
        "accuracy_by_mode": qa.accuracy_by_mode,
        "grounding_by_mode": qa.grounding_by_mode,
        "reliability": qa.reliability,
        "stages": qa.stages,
    },
    "speed": {
        "speedup_by_drafter": speed.speedup_by_drafter,
        "speed_by_drafter": speed.speed_by_drafter,
        "acceptance_by_task": speed.acceptance_by_task,
        "acceptance_by_depth": speed.acceptance_by_depth,
        "latency_per_token": speed.latency_per_token,
        "pass_costs": speed.pass_costs,
    },
    "tuning": {
        "gamma_sweep": speed.gamma_sweep,
        "pass_costs": speed.pass_costs,
        "acceptance_by_depth": speed.acceptance_by_depth,
    },
}
"""By kind of report; a picture is None where the report lacks its figures."""


def draw(kind: str, figures: Mapping[str, Any]) -> dict[str, Any]:
    """Draws all pictures that a report has the figures for.

    Args:
        kind: Of the report.
        figures: Of the report.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    drawn = {name: picture(figures) for name, picture in PICTURES[kind].items()}
    return {name: figure for name, figure in drawn.items() if figure is not None}
