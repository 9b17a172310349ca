"""Curves as picture files; needs matplotlib, from the extra `eval`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specrag.errors import ConfigError
from specrag.extras import require_extra

FORMATS = (".pdf", ".png", ".svg")


def check_plot(path: Path) -> None:
    """Refuses what could not be drawn, before time is spent on the figures.

    Args:
        path: Of the picture.

    Raises:
        ConfigError: The format is unknown, or the folder does not exist.
        MissingExtraError: matplotlib is not installed.
    """
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(
            f"cannot draw a picture named {path.name!r}", hint=f"allowed: {', '.join(FORMATS)}"
        )
    if not path.parent.is_dir():
        raise ConfigError(f"no folder {str(path.parent)!r} for the picture", hint="make it first")
    require_extra("matplotlib.figure", "eval")


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
    # An object of its own: pyplot would keep state for the whole process.
    figure: Any = require_extra("matplotlib.figure", "eval").Figure(figsize=(7.2, 4.8))
    axes = figure.add_subplot()
    axes.axhline(1.0, color="grey", linewidth=0.8)
    for label, values in curves:
        (line,) = axes.plot(range(len(values)), values, label=label)
        best = max(range(len(values)), key=lambda gamma: values[gamma])
        axes.plot([best], [values[best]], "o", color=line.get_color(), markersize=4)
    axes.set(xlabel="drafted tokens", ylabel="times plain decoding", title=title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=144)
