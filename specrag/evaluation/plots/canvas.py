"""An empty picture and how it becomes a file; needs matplotlib, from the extra `eval`."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from specrag.errors import ConfigError
from specrag.extras import require_extra

FORMATS = (".pdf", ".png", ".svg")
# Okabe and Ito's palette, told apart with every common kind of colour blindness; its yellow is
# left out, being too pale for lines on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#888888")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "p")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
HATCHES = ("", "//", "..", "xx", "\\\\", "oo", "--")
SMALL = 9  # points; less cannot be read at the width of a README

_WIDTH = 7.2  # inches; shown 800 pixels wide in a README
_DPI = 144
_LONGEST_NAME = 36
_LINE_LETTERS = 92  # of the small letters, side by side


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


def new_figure(title: str, height: float) -> Any:
    """Returns a figure without axes.

    Args:
        title: Above the picture.
        height: In inches; the width is always the same.
    """
    # An object of its own: pyplot would keep state for the whole process.
    figure: Any = require_extra("matplotlib.figure", "eval").Figure(
        figsize=(_WIDTH, height), layout="constrained"
    )
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    figure.suptitle(title, fontsize=11)
    return figure


def dress(axes: Any, xlabel: str, ylabel: str) -> None:
    """Gives axes their labels, a grid behind the figures and no more frame than needed.

    Args:
        axes: Of any figure.
        xlabel: With its unit.
        ylabel: With its unit.
    """
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def new_axes(xlabel: str, ylabel: str, title: str, height: float = 4.0) -> tuple[Any, Any]:
    """Returns an empty figure and its axes.

    Args:
        xlabel: With its unit.
        ylabel: With its unit.
        title: Above the picture.
        height: In inches, without the legend; the width is always the same.
    """
    figure = new_figure(title, height)
    axes = figure.add_subplot()
    dress(axes, xlabel, ylabel)
    return figure, axes


def style(number: int) -> dict[str, Any]:
    """Returns colour, marker and line of a series.

    All three differ from its neighbours', and no two of the first 72 series have the same colour
    and the same marker.

    Args:
        number: Of the series, from 0.
    """
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": LINES[number % len(LINES)],
    }


def filling(number: int) -> dict[str, Any]:
    """Returns colour and hatching of the bars of a series.

    Args:
        number: Of the series, from 0.
    """
    return {
        "color": COLOURS[number % len(COLOURS)],
        "hatch": HATCHES[number % len(HATCHES)],
        "edgecolor": "white",
    }


def named(text: str) -> str:
    """Returns a name from outside so that matplotlib shows its letters and nothing else.

    Args:
        text: May be long, or hold what matplotlib would take for a formula or an order.
    """
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    if len(shown) > _LONGEST_NAME:
        half = _LONGEST_NAME // 2
        shown = f"{shown[: half - 1]}\N{HORIZONTAL ELLIPSIS}{shown[-half:]}"
    shown = shown.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown  # an underscore hides from legends


def legend_below(axes: Any) -> None:
    """Puts the legend under a picture, where it hides nothing; the picture grows by it.

    Args:
        axes: With labelled series.
    """
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return
    columns = max(1, min(4, _LINE_LETTERS // (max(map(len, labels)) + 8)))
    figure = axes.figure
    figure.set_figheight(figure.get_figheight() + 0.2 * -(-len(labels) // columns) + 0.1)
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=min(columns, len(labels)),
        fontsize=SMALL,
        frameon=False,
    )


def save(figure: Any, path: Path) -> None:
    """Writes a picture; what was there is replaced.

    Args:
        figure: The picture.
        path: Its ending says how.
    """
    with _quiet():
        figure.savefig(path, dpi=_DPI, metadata=_metadata(path.suffix))


def as_svg(figure: Any) -> str:
    """Returns a picture as SVG whose letters are text.

    Args:
        figure: The picture.
    """
    matplotlib: Any = require_extra("matplotlib", "eval")
    buffer = io.StringIO()
    with _quiet(), matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "specrag"}):
        figure.savefig(buffer, format="svg", metadata=_metadata(".svg"))
    text = buffer.getvalue()
    return text[text.index("<svg") :]


@contextmanager
def _quiet() -> Iterator[None]:
    """A letter that the font lacks is shown as a box; nobody can do anything about it here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield


def _metadata(suffix: str) -> dict[str, Any]:
    """Leaves the time of drawing out, so that the same figures give the same file."""
    return {
        ".png": {"Software": None},
        ".svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
        ".pdf": {"CreationDate": None},
    }[suffix.lower()]
