"""Looks that tell series apart, names shown letter by letter, and files of a known size."""

from __future__ import annotations

import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.evaluation.plots.canvas import as_svg, filling, legend_below, named, new_axes, save
from specrag.evaluation.plots.canvas import style as look
from tests.evaluation.plots.drawn import labels, letters, png_size

pytest.importorskip("matplotlib")


def _one_line(name: str = "suffix") -> Any:
    figure, axes = new_axes("tokens", "times", "Speed")
    axes.plot([1, 2], [1, 2], label=named(name))
    legend_below(axes)
    return figure


def test_series_differ_in_more_than_colour() -> None:
    looks = [look(number) for number in range(72)]
    assert len({(each["color"], each["marker"]) for each in looks}) == len(looks)
    for one, other in pairwise(looks):
        assert all(one[key] != other[key] for key in ("color", "marker", "linestyle"))
    bars = [filling(number) for number in range(56)]
    assert len({(each["color"], each["hatch"]) for each in bars}) == len(bars)


@pytest.mark.parametrize(
    "name", ["a$b", "$x^2$", "_hidden", "a\\$b", "<script>alert(1)</script>", "a & b", "%s {x}"]
)
def test_a_name_is_shown_letter_by_letter(name: str) -> None:
    figure = _one_line(name)
    assert len(labels(figure)) == 1
    assert name in [text.strip() for text in letters(figure)]


@settings(deadline=None, max_examples=15)
@given(st.text(min_size=1))
def test_no_name_breaks_a_picture(name: str) -> None:
    assert "times" in letters(_one_line(name))


def test_long_names_keep_both_ends() -> None:
    shown = named("suffix+" + "x" * 80 + "+eagle3")
    assert len(shown) == 36
    assert shown.startswith("suffix+")
    assert shown.endswith("+eagle3")


def test_letters_that_the_font_lacks_warn_nobody(tmp_path: Path) -> None:
    figure = _one_line("\N{CJK UNIFIED IDEOGRAPH-8CEA}\N{CJK UNIFIED IDEOGRAPH-554F}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(figure, tmp_path / "a.png")
        as_svg(figure)


def test_a_picture_has_the_width_of_all_others(tmp_path: Path) -> None:
    figure = _one_line()
    save(figure, tmp_path / "a.png")
    width, height = png_size((tmp_path / "a.png").read_bytes())
    assert width == int(7.2 * 144)
    assert height == int(figure.get_figheight() * 144)


def test_a_long_legend_makes_the_picture_taller_and_not_the_axes_smaller() -> None:
    heights = []
    for count in (4, 24):
        figure, axes = new_axes("x", "y", "Many")
        for number in range(count):
            axes.plot([0, 1], [0, 1], label=f"drafter number {number}")
        legend_below(axes)
        figure.draw_without_rendering()
        heights.append(axes.get_position().height * figure.get_figheight())
    assert heights[1] > 0.9 * heights[0]


def test_the_same_figures_give_the_same_files(tmp_path: Path) -> None:
    contents = []
    for name in ("a", "b"):
        for ending in ("png", "svg", "pdf"):
            save(_one_line(), tmp_path / f"{name}.{ending}")
        contents.append([(tmp_path / f"{name}.png").read_bytes(), as_svg(_one_line())])
    assert contents[0] == contents[1]
    assert "http://" not in as_svg(_one_line()).replace("http://www.w3.org/", "")
