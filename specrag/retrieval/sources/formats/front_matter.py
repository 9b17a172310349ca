"""Facts at the head of a Markdown file. Depends on the document module."""

from __future__ import annotations

import re

from specrag.retrieval.document import MetadataValue
from specrag.retrieval.sources.formats.values import typed

_MAX_LINES = 200
_LINE = re.compile(r"[^\r\n]*")
_LINE_END = re.compile(r"\r\n?|\n")
_KEY = re.compile(r"([A-Za-z_][\w .-]{0,99}):(?:\s+(.*))?")
_ITEM = re.compile(r"\s*-\s+(.+)")
_QUOTED = re.compile(r"(['\"])(.*)\1(?:\s+#.*)?")
_COMMENT = re.compile(r"(?:^|\s)#.*")


def front_matter(text: str) -> dict[str, MetadataValue]:
    """Reads the simple part of YAML: ``key: value``, ``key: [a, b]``, and keys over ``- item``.

    Nested keys, texts over several lines, anchors and tags are passed over.

    Args:
        text: A Markdown file; front matter stands between two lines ``---`` at its start.

    Returns:
        The facts by key; empty without front matter.
    """
    facts: dict[str, MetadataValue] = {}
    open_key = ""
    for line in _head_lines(text):
        if open_key and (item := _ITEM.fullmatch(line)):
            known = facts.get(open_key, ())
            if isinstance(known, tuple):
                facts[open_key] = (*known, _unquoted(item[1]))
            continue
        found = _KEY.fullmatch(line)
        open_key = ""
        if found is None:
            continue
        value = _value(found[2] or "")
        if value is None:
            continue
        if value == "":
            open_key = found[1]
        else:
            facts[found[1]] = value
    return facts


def _head_lines(text: str) -> list[str]:
    """Returns the lines between the marks; none when the head is not closed."""
    lines: list[str] = []
    place = 0
    for number in range(_MAX_LINES):
        match = _LINE.match(text, place)
        line = match.group() if match else ""
        if number == 0 and line.rstrip() != "---":
            return []
        if number > 0:
            if line.rstrip() in ("---", "..."):
                return lines
            lines.append(line)
        end = _LINE_END.match(text, place + len(line))
        if end is None:
            break
        place = end.end()
    return []


def _value(written: str) -> MetadataValue | None:
    """Returns a value, ``""`` for none, None for what is not simple."""
    written = written.strip()
    if _QUOTED.fullmatch(written):
        return _unquoted(written)
    written = _COMMENT.sub("", written).strip()
    if written.startswith("[") and written.endswith("]"):
        parts = (part.strip() for part in written[1:-1].split(","))
        return tuple(_unquoted(part) for part in parts if part)
    if written[:1] in ("|", ">", "{", "&", "*", "!", "["):
        return None
    return typed(written)


def _unquoted(written: str) -> str:
    written = written.strip()
    quoted = _QUOTED.fullmatch(written)
    return quoted[2] if quoted else _COMMENT.sub("", written).strip()
