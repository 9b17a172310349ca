"""A report as Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from specrag.evaluation.reports.report import Report
from specrag.evaluation.reports.tables import Table, origin, tables_of


def to_markdown(report: Report, pictures: Iterable[str] = ()) -> str:
    """Returns a report as Markdown.

    Args:
        report: Of any kind.
        pictures: Names of the pictures that lie in ``plots/`` beside the text.
    """
    notes = [f"- {_escaped(note)}" for note in report.configuration.get("notes", ())]
    shown = [f"![{name.replace('_', ' ')}](plots/{name}.png)" for name in pictures]
    tables = [_table(table) for table in tables_of(report)]
    parts = [
        f"# {_escaped(report.title)}",
        "\n".join(notes),
        *tables,
        *shown,
        _table(origin(report)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(table: Table) -> str:
    lines = [table.head, tuple("---" for _ in table.head), *table.rows]
    body = "\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in lines)
    return f"## {_escaped(table.caption)}\n\n{body}"


def _escaped(text: str) -> str:
    single = " ".join(text.split())
    return single.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
