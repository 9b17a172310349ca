"""A report as files: JSON for programs, Markdown and one page for people, and its pictures."""

from __future__ import annotations

from pathlib import Path

from specrag.evaluation.reports.report import Report


def write_report(report: Report, folder: Path) -> list[Path]:
    """Writes a report into a folder.

    Args:
        report: What was found.
        folder: Made if it does not exist.

    Returns:
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "report.json"
    report.save(path)
    return [path]
