"""An empty picture and how it becomes a file; needs matplotlib, from the extra `eval`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from specrag.errors import ConfigError
from specrag.extras import require_extra

FORMATS = (".pdf", ".png", ".svg")
# Okabe and Ito's palette, told apart with every common kind of colour blindness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":", "-", "--", "-.", ":")
HATCHES = ("", "//", "..", "xx", "\\\\", "oo", "--", "++")
_WIDTH = 7.2  # inches; 800 pixels of a README leave letters of 9 points readable
_DPI = 144


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


def new_axes(xlabel: str, ylabel: str, title: str, height: float = 4.4) -> tuple[Any, Any]:
    """Returns an empty figure and its axes.

    Args:
        xlabel: With its unit.
        ylabel: With its unit.
        title: Above the picture.
        height: In inches; the width is always the same.
    """
    # An object of its own: pyplot would keep state for the whole process.
    figure: Any = require_extra("matplotlib.figure", "eval").Figure(
        figsize=(_WIDTH, height), layout="constrained"
    )
    axes = figure.add_subplot()
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.set_title(title, fontsize=11)
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def style(number: int) -> dict[str, Any]:
    """Returns colour, marker and line of a series; all three differ from its neighbours'.

    Args:
        number: Of the series, from 0.
    """
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": LINES[number % len(LINES)],
    }


def legend_below(axes: Any, columns: int = 4) -> None:
    """Puts the legend under a picture, where it hides nothing.

    Args:
        axes: With labelled series.
        columns: Most entries side by side.
    """
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        axes.figure.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=min(columns, len(labels)),
            fontsize=9,
            frameon=False,
        )


def save(figure: Any, path: Path) -> None:
    """Writes a picture; what was there is replaced.

    Args:
        figure: The picture.
        path: Its ending says how.
    """
    figure.savefig(path, dpi=_DPI, metadata=_metadata(path.suffix))


def as_svg(figure: Any) -> str:
    """Returns a picture as SVG whose letters are text.

    Args:
        figure: The picture.
    """
    matplotlib: Any = require_extra("matplotlib", "eval")
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "specrag"}):
        figure.savefig(buffer, format="svg", metadata=_metadata(".svg"))
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _metadata(suffix: str) -> dict[str, Any]:
    """Leaves the time of drawing out, so that the same figures give the same file."""
    return {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[
        suffix.lower()
    ]
