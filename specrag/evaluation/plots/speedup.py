"""Calculated speedups over the length of drafts, as `specrag advise` draws them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specrag.evaluation.plots.canvas import check_plot, new_axes, save, style


def plot_speedup(path: Path, curves: Sequence[tuple[str, Sequence[float]]], title: str) -> None:
    """Draws speedups over the length of drafts.

    Args:
        path: Of the picture; replaced if it exists.
        curves: Label and speedup at 0, 1, 2 ... drafted tokens.
        title: Above the picture.

    Raises:
        ConfigError: The format is unknown, or the folder does not exist.
        MissingExtraError: matplotlib is not installed.
    """
    check_plot(path)
    figure, axes = new_axes("drafted tokens", "times plain decoding", title, height=4.8)
    axes.axhline(1.0, color="grey", linewidth=0.8)
    for number, (label, values) in enumerate(curves):
        best = max(range(len(values)), key=lambda gamma: values[gamma])
        look = style(number)
        axes.plot(range(len(values)), values, label=label, markevery=[best], markersize=5, **look)
    axes.legend(fontsize="small")
    save(figure, path)
