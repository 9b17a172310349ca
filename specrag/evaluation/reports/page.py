"""A report as one page of HTML that needs nothing beside it: no script, no network."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape

from specrag.evaluation.plots.gallery import caption
from specrag.evaluation.reports.report import Report
from specrag.evaluation.reports.tables import Table, origin, tables_of

_CSS = """
:root { color-scheme: light dark; --line: #8886; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin-top: 2rem; }
figure { margin: 1.5rem 0; padding: .5rem; background: #fff; border: 1px solid var(--line);
  border-radius: 6px; }
figure svg { width: 100%; max-width: 50rem; height: auto; display: block; margin: 0 auto; }
figcaption { color: #333; padding: .4rem .6rem 0; font-size: .9rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .3rem .7rem; overflow-wrap: anywhere;
  border-bottom: 1px solid var(--line); }
td { min-width: 4rem; } tbody th { font-weight: 500; } thead th { background: var(--soft); }
@media print {
  body { max-width: none; margin: 0; font-size: 11px; }
  figure, tr { break-inside: avoid; } h2 { break-after: avoid; } .wide { overflow: visible; }
}
"""
# Should a name ever slip through unescaped, the browser still runs and loads nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_NAMESPACE = re.compile(r'\sxmlns(:\w+)?="[^"]*"')
_NAMED = re.compile(r'(\bid="|href="#|url\(#)')


def to_page(report: Report, pictures: Mapping[str, str], note: str = "") -> str:
    """Returns a report as a page.

    Args:
        report: Of any kind.
        pictures: SVG by name.
        note: Shown above the figures, such as why there are no pictures.
    """
    notes = [*report.configuration.get("notes", ()), *([note] if note else [])]
    shown = "".join(f"<li>{escape(text)}</li>" for text in notes)
    figures = "\n".join(_figure(name, svg) for name, svg in pictures.items())
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(report.title)}</title><style>{_CSS}</style></head><body><main>",
        f"<h1>{escape(report.title)}</h1>",
        f"<ul>{shown}</ul>" if shown else "",
        f"<section><h2>Pictures</h2>\n{figures}\n</section>" if figures else "",
        *(_table(table) for table in tables_of(report)),
        _table(origin(report)),
        "</main></body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _figure(name: str, svg: str) -> str:
    label = escape(caption(name))
    start, end, rest = svg.partition(">")
    # Inside a page the namespaces are known, and names must not come up twice.
    head = _NAMESPACE.sub("", start).replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    image = _NAMED.sub(rf"\g<1>{escape(name)}-", f"{head}{end}{rest}")
    return f"<figure>{image}<figcaption>{label}</figcaption></figure>"


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.head)
    rows = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>\n"
        for row in table.rows
    )
    return (
        f'<section><h2>{escape(table.caption)}</h2><div class="wide"><table>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div></section>"
    )
