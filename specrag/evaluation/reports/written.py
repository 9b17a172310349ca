"""A report as files: JSON for programs, Markdown and one page for people, and its pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specrag.errors import InputError, MissingExtraError
from specrag.evaluation.plots.canvas import as_svg, save
from specrag.evaluation.plots.gallery import PICTURES, draw
from specrag.evaluation.reports.markdown import to_markdown
from specrag.evaluation.reports.page import to_page
from specrag.evaluation.reports.report import Report


def write_report(report: Report, folder: Path) -> list[Path]:
    """Writes ``report.json``, ``report.md``, ``report.html`` and ``plots/`` into a folder.

    Without matplotlib, the extra ``eval``, there are no pictures, and the texts say so. Pictures
    of an earlier report that this one does not have are removed.

    Args:
        report: What was found.
        folder: Made if it does not exist.

    Returns:
        The files.

    Raises:
        InputError: They cannot be written.
    """
    try:
        return _written(report, folder)
    except OSError as error:
        raise InputError(
            f"cannot write the report to {str(folder)!r}: {error.strerror}",
            hint="name a folder that you may write to",
        ) from error


def _written(report: Report, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"report.{ending}" for ending in ("json", "md", "html")]
    report.save(files[0])
    drawn, note = _pictures(report)
    shown = {name: as_svg(figure) for name, figure in drawn.items()}
    files[1].write_text(to_markdown(report, drawn, note), encoding="utf-8")
    files[2].write_text(to_page(report, shown, note), encoding="utf-8")
    return files + _plots(drawn, shown, folder / "plots")


def _plots(drawn: dict[str, Any], shown: dict[str, str], folder: Path) -> list[Path]:
    for name in PICTURES.keys() - drawn.keys():
        for ending in ("png", "svg"):
            (folder / f"{name}.{ending}").unlink(missing_ok=True)
    files = []
    for name, figure in drawn.items():
        folder.mkdir(exist_ok=True)
        files += [folder / f"{name}.png", folder / f"{name}.svg"]
        save(figure, files[-2])
        files[-1].write_text(shown[name], encoding="utf-8")
    return files


def _pictures(report: Report) -> tuple[dict[str, Any], str]:
    try:
        return draw(report.kind, report.figures), ""
    except MissingExtraError as error:
        return {}, f"There are no pictures: {error.message}; {error.hint}."
