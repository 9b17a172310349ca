"""PDF files: the text of their pages. Needs the extra ``docs``."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from typing import Any

from specrag.extras import require_extra
from specrag.retrieval.sources.bounds import MAX_PDF_PAGES, MAX_TEXT_CHARACTERS
from specrag.retrieval.sources.formats.markdown_writer import one_line
from specrag.retrieval.sources.source import Content, ReadOptions, UnreadableError

_PAGE_BORDER = "\n\n"
_HEADER_BYTES = 1024  # where the mark of a PDF must stand, by its standard


def read_pdf(data: bytes, name: str, options: ReadOptions) -> tuple[Content, ...]:
    """Reads the text of a PDF; what is only a picture of text has none.

    Args:
        data: The file.
        name: Not looked at.
        options: Not looked at.

    Raises:
        UnreadableError: It is damaged, encrypted, or has no text.
        MissingExtraError: The extra ``docs`` is not installed.
    """
    if b"%PDF-" not in data[:_HEADER_BYTES]:
        raise UnreadableError("is no PDF file (its start does not say so)")
    pypdf = require_extra("pypdf", "docs")
    # It warns of each flaw that it mends; only what it cannot mend concerns the user.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = pypdf.PdfReader(io.BytesIO(data), strict=False)
        if reader.is_encrypted and not reader.decrypt(""):
            raise UnreadableError("is encrypted; save it without a password")
        texts = list(_texts(reader))
        title = one_line(str((reader.metadata or {}).get("/Title") or "")) or None
    except UnreadableError:
        raise
    except pypdf.errors.DependencyError as error:
        raise UnreadableError(
            "is encrypted; save it without protection, or: pip install cryptography"
        ) from error
    except Exception as error:  # pypdf promises no kind of error for damage
        raise UnreadableError(f"is a damaged PDF file ({_short(error)})") from error
    if not any(text.strip() for text in texts):
        raise UnreadableError("is a PDF without text; run text recognition (OCR) on it first")
    return (_joined(texts, title),)


def _texts(reader: Any) -> Iterator[str]:
    num_characters = 0
    for number, page in enumerate(reader.pages):
        if number >= MAX_PDF_PAGES:
            raise UnreadableError(f"has more than {MAX_PDF_PAGES:,} pages; split it")
        text = (page.extract_text() or "").strip()
        num_characters += len(text)
        if num_characters > MAX_TEXT_CHARACTERS:
            raise UnreadableError(f"holds more than {MAX_TEXT_CHARACTERS:,} characters of text")
        yield text


def _joined(texts: list[str], title: str | None) -> Content:
    starts: list[int] = []
    place = 0
    for text in texts:
        starts.append(place)
        place += len(text) + len(_PAGE_BORDER)
    metadata = {"pages": len(texts)}
    return Content(_PAGE_BORDER.join(texts), "plain", title, metadata, tuple(starts))


def _short(error: Exception) -> str:
    return one_line(str(error))[:100] or type(error).__name__
