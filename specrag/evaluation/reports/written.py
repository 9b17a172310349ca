"""A report as files: JSON for programs, Markdown and one page for people, and its pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specrag.errors import InputError, MissingExtraError
from specrag.evaluation.plots.canvas import as_svg, save
from specrag.evaluation.plots.gallery import draw
from specrag.evaluation.reports.markdown import to_markdown
from specrag.evaluation.reports.page import to_page
from specrag.evaluation.reports.report import Report


def write_report(report: Report, folder: Path) -> list[Path]:
    """Writes ``report.json``, ``report.md``, ``report.html`` and ``plots/`` into a folder.

    Without matplotlib, the extra ``eval``, there are no pictures, and the page says so.

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
        raise InputError(f"cannot write the report to {str(folder)!r}: {error.strerror}") from error


def _written(report: Report, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "report.json"
    report.save(path)
    drawn, note = _pictures(report)
    files = [path, folder / "report.md", folder / "report.html"]
    files[1].write_text(to_markdown(report, drawn), encoding="utf-8")
    shown = {name: as_svg(figure) for name, figure in drawn.items()}
    files[2].write_text(to_page(report, shown, note), encoding="utf-8")
    plots = folder / "plots"
    plots.mkdir(exist_ok=True)
    for name, figure in drawn.items():
        save(figure, plots / f"{name}.png")
        (plots / f"{name}.svg").write_text(shown[name], encoding="utf-8")
        files += [plots / f"{name}.png", plots / f"{name}.svg"]
    return files


def _pictures(report: Report) -> tuple[dict[str, Any], str]:
    try:
        return draw(report.kind, report.figures), ""
    except MissingExtraError as error:
        return {}, f"There are no pictures: {error.message}; {error.hint}."
