"""Which pictures there are, and which of them a report has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from specrag.evaluation.plots import (
    acceptance,
    answers,
    costs,
    gate,
    latency,
    retrieval,
    sweeps,
    throughput,
)


@dataclass(frozen=True, slots=True)
class Picture:
    """One kind of picture.

    Attributes:
        draw: Makes it from the figures of a report; None where they are all unknown.
        kinds: Of reports that have it.
        needs: The keys of the figures that it is drawn from; one of them is enough.
        caption: What it shows, for readers who cannot see it, too.
    """

    draw: Callable[[Mapping[str, Any]], Any]
    kinds: tuple[str, ...]
    needs: tuple[str, ...]
    caption: str


PICTURES: Mapping[str, Picture] = {
    "accuracy_retrieval": Picture(
        gate.accuracy_retrieval,
        ("qa",),
        ("gate",),
        "Accuracy over the share of questions that are looked up: the gate, what it must beat, "
        "and the modes with 95 % intervals.",
    ),
    "accuracy_by_mode": Picture(
        answers.accuracy_by_mode,
        ("qa",),
        ("modes",),
        "Measures of the answers by mode, with 95 % intervals.",
    ),
    "grounding_by_mode": Picture(
        answers.grounding_by_mode,
        ("qa",),
        ("modes",),
        "Measures of the passages and citations by mode, with 95 % intervals.",
    ),
    "reliability": Picture(
        gate.reliability,
        ("qa",),
        ("gate",),
        "How often closed book was right over how sure the gate was of it, and of how many "
        "questions.",
    ),
    "stages": Picture(
        latency.stages, ("qa",), ("latency_ms",), "Mean time of each stage of a question by mode."
    ),
    "latency_by_mode": Picture(
        latency.latency_by_mode,
        ("qa",),
        ("latency_ms",),
        "Median, 90th and 99th percentile of the time of a question by mode.",
    ),
    "speedup_by_drafter": Picture(
        throughput.speedup_by_drafter,
        ("speed",),
        ("results",),
        "Speed of each arm as a multiple of plain decoding, with 95 % intervals over prompts.",
    ),
    "speed_by_drafter": Picture(
        throughput.speed_by_drafter,
        ("speed", "tuning"),
        ("results", "drafters"),
        "Tokens per second of each arm, with 95 % intervals over prompts where they are known.",
    ),
    "acceptance_by_task": Picture(
        acceptance.acceptance_by_task,
        ("speed",),
        ("tasks",),
        "Share of first drafted tokens that were accepted, by task, beside the range that is "
        "usual in the field.",
    ),
    "acceptance_by_depth": Picture(
        acceptance.acceptance_by_depth,
        ("speed", "tuning"),
        ("results", "drafters"),
        "Share of drafts that were accepted at least to each depth.",
    ),
    "latency_per_token": Picture(
        latency.latency_per_token,
        ("speed",),
        ("results",),
        "Median, 90th and 99th percentile of the time of a token by arm.",
    ),
    "gamma_sweep": Picture(
        sweeps.gamma_sweep,
        ("tuning",),
        ("sweep",),
        "Speed over the length of the drafts, as a multiple of plain decoding; the best length "
        "of each drafter is circled.",
    ),
    "tree_sweep": Picture(
        sweeps.tree_sweep,
        ("tuning",),
        ("sweep",),
        "Speed of chains and trees by drafter and settings, as a multiple of plain decoding.",
    ),
    "pass_costs": Picture(
        costs.pass_costs,
        ("speed", "tuning"),
        ("costs",),
        "Time of a pass of the target over N tokens, as a multiple of a pass over one.",
    ),
    "recall_by_depth": Picture(
        retrieval.recall_by_depth,
        ("retrieval",),
        ("retrievers",),
        "Share of the relevant documents among the first k by retriever, with 95 % intervals.",
    ),
    "ranking_by_retriever": Picture(
        retrieval.ranking_by_retriever,
        ("retrieval",),
        ("retrievers",),
        "How well the documents found are ordered by retriever, with 95 % intervals.",
    ),
    "lookup_by_retriever": Picture(
        retrieval.lookup_by_retriever,
        ("retrieval",),
        ("latency_ms",),
        "Median, 90th and 99th percentile of the time of a lookup by retriever.",
    ),
}
"""By name, in the order in which reports show them."""


def draw(kind: str, figures: Mapping[str, Any]) -> dict[str, Any]:
    """Draws all pictures that a report has the figures for.

    Args:
        kind: Of the report.
        figures: Of the report.

    Raises:
        MissingExtraError: matplotlib is not installed, and there is something to draw.
    """
    drawn = {
        name: picture.draw(figures)
        for name, picture in PICTURES.items()
        if kind in picture.kinds and any(figures.get(key) for key in picture.needs)
    }
    return {name: figure for name, figure in drawn.items() if figure is not None}


def caption(name: str) -> str:
    """Returns what a picture shows.

    Args:
        name: Of the picture.
    """
    return PICTURES[name].caption if name in PICTURES else name.replace("_", " ")
