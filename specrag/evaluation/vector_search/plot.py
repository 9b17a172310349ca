"""What an index of vectors costs by its size, as one picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from specrag.evaluation.plots.canvas import dress, legend_below, named, new_figure, style

_HEIGHT = 5.6  # inches
_MIB_IN_MB = 1.048576
Value = Callable[[Mapping[str, Any]], float]

_PANELS: tuple[tuple[str, Value], ...] = (
    ("search, P50 (ms)", lambda row: row["mapped"]["one_thread_ms"]["p50"]),
    ("recall@k", lambda row: row["mapped"]["recall"]),
    ("memory when read (MB)", lambda row: row["read"]["anonymous_mib"] * _MIB_IN_MB),
    ("build (s)", lambda row: row["build_seconds"]),
)


def cost_against_size(report: Mapping[str, Any]) -> Any:
    """Draws time, recall, memory and building over the number of vectors; None without figures.

    Args:
        report: Of ``run_vector_benchmark``.
    """
    rows = report["results"]
    if not rows:
        return None
    dimension = report["settings"]["dimension"]
    figure = new_figure(f"What a search of vectors costs ({dimension} dimensions)", _HEIGHT)
    grid = figure.subplots(2, 2).ravel()
    for axes, (label, value) in zip(grid, _PANELS, strict=True):
        dress(axes, "vectors", label)
        _lines(axes, rows, value)
        axes.set_xscale("log")
        if label.startswith("recall"):
            axes.set_ylim(0, 1.05)
        else:
            axes.set_yscale("log")
            axes.yaxis.set_minor_formatter("")
    legend_below(grid[0])
    return figure


def recall_against_time(report: Mapping[str, Any]) -> Any:
    """Draws what more effort brings in the largest index of each kind; None without figures.

    Args:
        report: Of ``run_vector_benchmark``.
    """
    rows = [row for row in report["results"] if row["read"]["efforts"]]
    if not rows:
        return None
    largest = max(row["num_vectors"] for row in rows)
    figure = new_figure(f"What effort brings ({largest:,} vectors, one thread)", _HEIGHT / 2)
    axes = figure.subplots()
    dress(axes, "time of the processor a query, P50 (ms)", "recall@k")
    for number, row in enumerate(row for row in rows if row["num_vectors"] == largest):
        efforts = row["read"]["efforts"]
        times = [max(effort["cpu_ms"]["p50"], 1e-3) for effort in efforts]
        recalls = [effort["recall"] for effort in efforts]
        label = f"{named(row['name'])}: {efforts[0]['setting']}"
        axes.plot(times, recalls, label=label, markersize=5, **style(number))
        for effort, time, recall in zip(efforts, times, recalls, strict=True):
            axes.annotate(
                f"{effort['value']}",
                (time, recall),
                fontsize=7,
                xytext=(3, -9),
                textcoords="offset points",
            )
    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter("")
    axes.set_ylim(0, 1.05)
    legend_below(axes)
    return figure


def _lines(axes: Any, rows: list[Mapping[str, Any]], value: Value) -> None:
    names = list(dict.fromkeys(row["name"] for row in rows))
    for number, name in enumerate(names):
        own = sorted((row["num_vectors"], value(row)) for row in rows if row["name"] == name)
        # A log axis has no place for zero, which a small index may be said to take.
        sizes, values = zip(*((size, max(found, 1e-3)) for size, found in own), strict=True)
        axes.plot(sizes, values, label=named(name), markersize=5, **style(number))
