"""A report as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable

from specrag.evaluation.plots.gallery import caption
from specrag.evaluation.reports.report import Report
from specrag.evaluation.reports.tables import Table, origin, tables_of

_ORDERS = re.compile(r"([\\`*\[\]|~])")  # what starts markup in the middle of a line


def to_markdown(report: Report, pictures: Iterable[str] = (), note: str = "") -> str:
    """Returns a report as Markdown.

    Args:
        report: Of any kind.
        pictures: Names of the pictures that lie in ``plots/`` beside the text.
        note: Shown above the figures, such as why there are no pictures.
    """
    notes = [*report.configuration.get("notes", ()), *([note] if note else [])]
    parts = [
        f"# {_escaped(report.title)}",
        "\n".join(f"- {_escaped(text)}" for text in notes),
        *(_table(table) for table in tables_of(report)),
        *(f"![{_escaped(caption(name))}](plots/{name}.png)" for name in pictures),
        _table(origin(report)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(table: Table) -> str:
    lines = [table.head, tuple("---" for _ in table.head), *table.rows]
    body = "\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in lines)
    return f"## {_escaped(table.caption)}\n\n{body}"


def _escaped(text: str) -> str:
    """Returns one line that shows these very letters; a name may hold markup, or HTML."""
    single = _ORDERS.sub(r"\\\1", " ".join(text.split()))
    return single.replace("&", "&amp;").replace("<", "&lt;")
