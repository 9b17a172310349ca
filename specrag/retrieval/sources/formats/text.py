"""Plain text, Markdown, reStructuredText and source code. Depends on decoding and bounds."""

from __future__ import annotations

import re

from specrag.retrieval.document import MetadataValue
from specrag.retrieval.sources.bounds import MAX_LINE_CHARACTERS
from specrag.retrieval.sources.decoding import UTF8_NAMES, decode
from specrag.retrieval.sources.formats.front_matter import front_matter
from specrag.retrieval.sources.source import Content, ReadOptions, UnreadableError
from specrag.retrieval.structure import syntax_of

_LINE = re.compile(r"[^\r\n]++")


def read_text(data: bytes, name: str, options: ReadOptions) -> tuple[Content, ...]:
    """Reads a file whose text is the document as it stands, line ends included.

    Args:
        data: The file.
        name: Its name, whose suffix tells the markup.
        options: How to read it.

    Raises:
        UnreadableError: It is no text, or has a line too long.
    """
    text, metadata = decoded(data, options)
    if len(text) > MAX_LINE_CHARACTERS:
        _check_lines(text)
    syntax = syntax_of(name)
    if syntax != "markdown":
        return (Content(text, syntax, metadata=metadata),)
    facts = front_matter(text)
    title = str(facts.pop("title", "")) or None
    return (Content(text, syntax, title, {**facts, **metadata}),)


def decoded(data: bytes, options: ReadOptions) -> tuple[str, dict[str, MetadataValue]]:
    """Returns the text of a file, and its encoding as metadata where that is not UTF-8.

    Args:
        data: The file.
        options: How to read it.

    Raises:
        UnreadableError: It is no text.
    """
    text, encoding = decode(data, options.encoding)
    return text, {} if encoding in UTF8_NAMES else {"encoding": encoding}


def _check_lines(text: str) -> None:
    longest = max((len(match.group()) for match in _LINE.finditer(text)), default=0)
    if longest > MAX_LINE_CHARACTERS:
        raise UnreadableError(
            f"has a line of {longest:,} characters (at most {MAX_LINE_CHARACTERS:,}), which is "
            "data and not text"
        )
