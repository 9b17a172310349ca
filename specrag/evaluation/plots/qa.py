"""Pictures of question-answering runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specrag.evaluation.plots.canvas import (
    COLOURS,
    HATCHES,
    MARKERS,
    legend_below,
    new_axes,
    style,
)

Figures = Mapping[str, Any]

_ORDER = (
    "oracle", "gate", "random", "perplexity", "margin", "entropy", "low_probability",
    "popularity", "question_length",
)  # fmt: skip
_MEASURES = ("exact_match", "f1", "contains")
_GROUNDING = ("retrieval_recall", "answer_in_context", "citation_precision", "citation_recall")
_STAGES = ("gate_ms", "lookup_ms", "prefill_ms", "decode_ms")


def accuracy_retrieval(figures: Figures) -> Any:
    """Draws accuracy over the share of questions looked up, for the gate and all baselines.

    Args:
        figures: Of a report of kind ``qa``.
    """
    gate = figures.get("gate")
    if not gate:
        return None
    measure = gate["measure"].replace("_", " ")
    figure, axes = new_axes(
        "questions looked up (%)", f"accuracy: {measure} (%)", "What looking up buys", 4.8
    )
    names = [name for name in _ORDER if name in gate["curves"]]
    for number, name in enumerate(names):
        rates, values = zip(*gate["curves"][name], strict=True)
        look = {**style(number), "marker": ""}
        if name in ("oracle", "random"):
            look |= {"color": "#555555", "linestyle": ":" if name == "random" else "-"}
        width = 2.4 if name == "gate" else 1.4
        axes.plot(_percent(rates), _percent(values), label=_plain(name), linewidth=width, **look)
    for number, (mode, point) in enumerate(gate["points"].items()):
        found = point["accuracy"]
        value = 100 * found["value"]
        error = [[value - 100 * found["low"]], [100 * found["high"] - value]]
        axes.errorbar(
            [100 * point["retrieval_rate"]],
            [value],
            yerr=error,
            fmt=MARKERS[number],
            color="black",
            capsize=4,
            markersize=8,
            label=f"mode {mode}",
            zorder=5,
        )
    legend_below(axes)
    return figure


def reliability(figures: Figures) -> Any:
    """Draws how often closed book was right over how sure the gate was of it.

    Args:
        figures: Of a report of kind ``qa``.
    """
    rows = (figures.get("gate") or {}).get("reliability")
    if not rows:
        return None
    figure, axes = new_axes(
        "gate: closed book needs no documents (%)",
        "closed book right (%)",
        "Reliability of the gate",
    )
    axes.plot([0, 100], [0, 100], color="grey", linestyle=":", label="perfect")
    predicted = _percent([row["predicted"] for row in rows])
    observed = _percent([row["observed"] for row in rows])
    axes.plot(predicted, observed, label="measured", markersize=7, **style(0))
    for x, y, row in zip(predicted, observed, rows, strict=True):
        axes.annotate(
            f"n={row['num_items']}", (x, y), textcoords="offset points", xytext=(6, 6), fontsize=8
        )
    axes.set(xlim=(-3, 103), ylim=(-3, 108))
    legend_below(axes)
    return figure


def accuracy_by_mode(figures: Figures) -> Any:
    """Draws the measures of answers side by side for each mode.

    Args:
        figures: Of a report of kind ``qa``.
    """
    return _bars(figures, _MEASURES, "answers (%)", "How good the answers are")


def grounding_by_mode(figures: Figures) -> Any:
    """Draws the measures of passages and citations for each mode.

    Args:
        figures: Of a report of kind ``qa``.
    """
    return _bars(figures, _GROUNDING, "questions (%)", "What the answers stand on")


def stages(figures: Figures) -> Any:
    """Draws where the time of a question goes, stage by stage.

    Args:
        figures: Of a report of kind ``qa``.
    """
    spent = figures.get("latency_ms")
    if not spent:
        return None
    figure, axes = new_axes("milliseconds per question", "", "Where the time goes", 2.8)
    modes = list(spent)
    left = [0.0] * len(modes)
    for number, stage in enumerate(_STAGES):
        means = [spent[mode][stage]["mean"] or 0.0 for mode in modes]
        axes.barh(
            [f"mode {mode}" for mode in modes],
            means,
            left=left,
            color=COLOURS[number],
            hatch=HATCHES[number],
            edgecolor="white",
            label=stage.removesuffix("_ms"),
        )
        left = [a + b for a, b in zip(left, means, strict=True)]
    axes.invert_yaxis()
    legend_below(axes)
    return figure


def _bars(figures: Figures, measures: tuple[str, ...], ylabel: str, title: str) -> Any:
    modes = figures.get("modes", {})
    known = [
        name
        for name in measures
        if any((found.get(name) or {}).get("value") is not None for found in modes.values())
    ]
    if not known:
        return None
    figure, axes = new_axes("", ylabel, title, 3.8)
    width = 0.8 / len(modes)
    for number, (mode, found) in enumerate(modes.items()):
        places, heights, errors = [], [], []
        for place, name in enumerate(known):
            value = found.get(name) or {}
            if value.get("value") is None:
                continue
            places.append(place + (number - (len(modes) - 1) / 2) * width)
            heights.append(100 * value["value"])
            ends = (value["value"] - value["low"], value["high"] - value["value"])
            errors.append([100 * end for end in ends])
        axes.bar(
            places,
            heights,
            width * 0.92,
            yerr=list(zip(*errors, strict=True)) if errors else None,
            capsize=3,
            color=COLOURS[number],
            hatch=HATCHES[number],
            edgecolor="white",
            label=f"mode {mode}",
        )
    axes.set_xticks(range(len(known)), [_plain(name) for name in known])
    axes.set_ylim(bottom=0)
    legend_below(axes)
    return figure


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _percent(values: Any) -> list[float]:
    return [100 * value for value in values]
