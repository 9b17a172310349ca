"""How good the gate's choice of questions to look up is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specrag.evaluation.plots.canvas import (
    COLOURS,
    LINES,
    MARKERS,
    dress,
    legend_below,
    named,
    new_axes,
    new_figure,
)
from specrag.evaluation.plots.marks import counted, reach, share

_LOOKS: Mapping[str, Mapping[str, Any]] = {
    "gate": {"color": COLOURS[0], "linestyle": "-", "linewidth": 2.8, "zorder": 4},
    "oracle": {"color": "#555555", "linestyle": "-", "linewidth": 1.2},
    "random": {"color": "#555555", "linestyle": ":", "linewidth": 2.0},
}
_ORDER = (
    "gate", "oracle", "random", "perplexity", "margin", "entropy", "low_probability",
    "popularity", "question_length",
)  # fmt: skip


def accuracy_retrieval(figures: Mapping[str, Any]) -> Any:
    """Draws accuracy over the share of questions looked up, for the gate and all baselines.

    Args:
        figures: Of a report of kind ``qa``.
    """
    gate = figures.get("gate") or {}
    curves = {name: _known(pairs) for name, pairs in (gate.get("curves") or {}).items()}
    curves = {name: pairs for name, pairs in curves.items() if pairs}
    points = {
        mode: (point["retrieval_rate"], point["accuracy"])
        for mode, point in (gate.get("points") or {}).items()
        if point.get("retrieval_rate") is not None and share(point.get("accuracy"))
    }
    if not curves and not points:
        return None
    title = counted(
        "What looking up buys",
        (accuracy.get("num_items") for _, accuracy in points.values()),
        "questions",
    )
    measure = str(gate.get("measure") or "").replace("_", " ")
    label = f"accuracy: {named(measure)} (%)" if measure else "accuracy (%)"
    figure, axes = new_axes("questions looked up (%)", label, title)
    others = iter(range(1, 99))
    for name in sorted(curves, key=lambda name: _ORDER.index(name) if name in _ORDER else 99):
        rates, values = zip(*curves[name], strict=True)
        look = _LOOKS.get(name) or _thin(next(others))
        axes.plot(_percent(rates), _percent(values), label=named(name.replace("_", " ")), **look)
    for number, (mode, (rate, accuracy)) in enumerate(points.items()):
        found = share(accuracy)
        assert found is not None, "modes without accuracy are left out above"
        axes.errorbar(
            [100 * rate],
            [found.value],
            yerr=reach([found]),
            fmt=MARKERS[number % len(MARKERS)],
            color="black",
            markerfacecolor="white",
            markeredgewidth=1.6,
            capsize=4,
            markersize=8,
            label=f"mode {named(mode)}",
            zorder=5,
        )
    axes.set_xlim(-3, 103)
    legend_below(axes)
    return figure


def reliability(figures: Mapping[str, Any]) -> Any:
    """Draws how often closed book was right over how sure the gate was, and of how many questions.

    Args:
        figures: Of a report of kind ``qa``.
    """
    gate = figures.get("gate") or {}
    names = ("predicted", "observed", "num_items")
    rows = [
        [row[name] for name in names]
        for row in gate.get("reliability") or ()
        if all(row.get(name) is not None for name in names)
    ]
    if not rows:
        return None
    predicted, observed, counts = zip(*sorted(rows), strict=True)
    title = counted("Reliability of the gate", [sum(counts)], "questions")
    figure = new_figure(title, 4.8)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    dress(above, "", "closed book right (%)")
    dress(below, "gate: chance that no documents are needed (%)", "questions")
    above.plot([0, 100], [0, 100], color="#555555", linestyle=":", label="perfect")
    ece = gate.get("ece")
    label = "measured" if ece is None else f"measured, calibration error {100 * ece:.1f} %"
    above.plot(_percent(predicted), _percent(observed), marker="o", color=COLOURS[0], label=label)
    below.vlines(_percent(predicted), 0, counts, color=COLOURS[0], linewidth=6)
    above.set(xlim=(-2, 102), ylim=(-3, 103))
    below.set_ylim(0, 1.25 * max(counts))
    legend_below(above)
    return figure


def _known(pairs: Sequence[Sequence[float | None]]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in pairs if x is not None and y is not None]


def _thin(number: int) -> dict[str, Any]:
    """Returns the line of a baseline; neither the gate's colour nor black, which modes have."""
    colours = [*COLOURS[1:6], COLOURS[7]]
    return {
        "color": colours[(number - 1) % len(colours)],
        "linestyle": LINES[1:][(number - 1) % (len(LINES) - 1)],
        "linewidth": 1.5,
    }


def _percent(values: Sequence[float]) -> list[float]:
    return [100 * value for value in values]
