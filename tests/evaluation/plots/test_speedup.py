"""Curves as files; without matplotlib the hint names the extra."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from specrag.errors import ConfigError, MissingExtraError
from specrag.evaluation.plots.canvas import FORMATS, check_plot
from specrag.evaluation.plots.speedup import plot_speedup

CURVES = [("alpha 0.50", [1.0, 1.2, 1.1]), ("alpha 0.90", [1.0, 1.5, 1.9])]
STARTS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_picture_is_drawn(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"speedup{suffix}"
    plot_speedup(path, CURVES, "flat")
    assert path.read_bytes().startswith(STARTS[suffix])
    assert "matplotlib.pyplot" not in sys.modules  # it would keep state for the whole process


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(MissingExtraError, match=r"specrag\[eval\]"):
        check_plot(tmp_path / "a.png")


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'a\.txt'"):
        check_plot(tmp_path / "a.txt")
    with pytest.raises(ConfigError, match="no folder"):
        check_plot(tmp_path / "gone" / "a.png")
