"""All files of a report, with and without pictures."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from specrag.errors import InputError
from specrag.evaluation.plots.gallery import PICTURES
from specrag.evaluation.reports.report import KINDS, Kind, load_report
from specrag.evaluation.reports.written import write_report
from tests.evaluation.plots.drawn import png_size
from tests.evaluation.reports.samples import hostile_report, report


def _without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [])


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_is_written_whole(kind: Kind, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folder = tmp_path / "runs" / "first"
    asked = report(kind)
    files = write_report(asked, folder)
    assert sorted(files) == sorted(path for path in folder.rglob("*") if path.is_file())
    assert load_report(folder) == asked
    names = [name for name, known in PICTURES.items() if kind in known.kinds]
    assert sorted({path.stem for path in (folder / "plots").iterdir()}) == sorted(names)
    markdown = (folder / "report.md").read_text(encoding="utf-8")
    for name in names:
        assert f"](plots/{name}.png)" in markdown
        width, height = png_size((folder / "plots" / f"{name}.png").read_bytes())
        assert width == 1036
        assert height > 250
        ElementTree.parse(folder / "plots" / f"{name}.svg")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count("<figure>") == len(names)
    assert "matplotlib.pyplot" not in sys.modules  # it would keep state for the whole process


@pytest.mark.parametrize("kind", KINDS)
def test_without_matplotlib_the_texts_say_so(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without_matplotlib(monkeypatch)
    files = write_report(report(kind), tmp_path)
    assert [path.name for path in files] == ["report.json", "report.md", "report.html"]
    for path in files[1:]:
        text = path.read_text(encoding="utf-8")
        assert "There are no pictures" in text
        assert "specrag[eval]" in text.replace("\\", "")
        assert "plots/" not in text
    assert not (tmp_path / "plots").exists()


def test_pictures_of_an_earlier_report_do_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    write_report(report("tuning"), tmp_path)
    (tmp_path / "plots" / "mine.png").write_bytes(b"")
    figures = {**report("tuning").figures, "sweep": []}
    files = write_report(report("tuning", figures=figures), tmp_path)
    left = set((tmp_path / "plots").iterdir()) - set(files)
    assert left == {tmp_path / "plots" / "mine.png"}
    _without_matplotlib(monkeypatch)
    write_report(report("tuning"), tmp_path)
    assert set((tmp_path / "plots").iterdir()) == left


def test_a_report_without_figures_is_a_report(tmp_path: Path) -> None:
    files = write_report(report("speed", figures={"results": []}), tmp_path)
    assert len(files) == 3


def test_hostile_names_are_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for path in write_report(hostile_report(), tmp_path):
        if path.suffix == ".svg":
            root = ElementTree.parse(path).getroot()
            assert not [node for node in root.iter() if node.tag.endswith("script")]


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="cannot write the report"):
        write_report(report("qa"), tmp_path / "file" / "run")
