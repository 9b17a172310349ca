"""A report as one page of HTML that needs nothing beside it: no script, no network."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from specrag.evaluation.reports.report import Report
from specrag.evaluation.reports.tables import Table, origin, tables_of

_CSS = """
:root { color-scheme: light dark; --line: #8886; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
figure { margin: 2rem 0; background: #fff; border: 1px solid var(--line); border-radius: 6px; }
figure svg { width: 100%; height: auto; display: block; }
figcaption { color: #333; padding: 0 1rem .6rem; font-size: .9rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .7rem; border-bottom: 1px solid var(--line); }
thead th { background: var(--soft); }
@media print { body { max-width: none; } figure { break-inside: avoid; } }
"""


def to_page(report: Report, pictures: Mapping[str, str], note: str = "") -> str:
    """Returns a report as a page.

    Args:
        report: Of any kind.
        pictures: SVG by name.
        note: Shown above the figures, such as why there are no pictures.
    """
    notes = [*report.configuration.get("notes", ()), *([note] if note else [])]
    shown = "".join(f"<li>{escape(text)}</li>" for text in notes)
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(report.title)}</title><style>{_CSS}</style></head><body>",
        f"<h1>{escape(report.title)}</h1>",
        f"<ul>{shown}</ul>" if shown else "",
        *(_figure(name, svg) for name, svg in pictures.items()),
        *(_table(table) for table in tables_of(report)),
        _table(origin(report)),
        "</body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _figure(name: str, svg: str) -> str:
    label = escape(name.replace("_", " "))
    image = svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    return f"<figure>{image}<figcaption>{label}</figcaption></figure>"


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.head)
    rows = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in table.rows
    )
    caption = escape(table.caption)
    return (
        f'<section><h2>{caption}</h2><div class="wide"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></section>"
    )
