"""A set while it is being read: items and documents are checked and named as they come."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from specrag.errors import InputError
from specrag.evaluation.datasets.item import EvalDataset, EvalItem, Task
from specrag.retrieval.document import Document


class Draft:
    """Collects the questions and documents of a set.

    Args:
        source: Where the set is read from; also named in messages.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._items: dict[str, EvalItem] = {}
        self._documents: dict[str, Document] = {}
        self._by_text: dict[tuple[str, str], str] = {}

    def where(self, number: int) -> str:
        """Returns how a row is called in messages.

        Args:
            number: Counted from 1.
        """
        return f"entry {number} of {self.source!r}"

    def add(self, number: int, item_id: Any, question: Any, **fields: Any) -> None:
        """Adds a question.

        Args:
            number: Of its row, counted from 1.
            item_id: As the set has it; None takes the number.
            question: What is asked.
            **fields: Of ``EvalItem``.

        Raises:
            InputError: The question is blank or no text, or its id is taken.
        """
        if not isinstance(question, str) or not question.strip():
            raise InputError(
                f"{self.where(number)}: the question is no text or blank: {question!r}"
            )
        name = str(number) if item_id is None else str(item_id)
        if name in self._items:
            raise InputError(f"{self.where(number)}: the id {name!r} is there already")
        self._items[name] = EvalItem(name, question.strip(), **fields)

    def document(self, title: str, text: str, document_id: str | None = None) -> str:
        """Adds a document, unless it is there already, and returns its id.

        Args:
            title: For people; may be empty.
            text: The document.
            document_id: As the set has it; None makes one of title and text.

        Raises:
            InputError: Another document has this id.
        """
        if document_id is None:
            known = self._by_text.get((title, text))
            if known is not None:
                return known
            digest = hashlib.sha256(f"{title}\0{text}".encode()).hexdigest()[:8]
            document_id = f"{title or 'document'}-{digest}"
            self._by_text[title, text] = document_id
        kept = self._documents.get(document_id)
        if kept is not None and kept.text != text:
            raise InputError(f"{self.source!r} has two documents with the id {document_id!r}")
        if text.strip():
            self._documents[document_id] = Document(
                document_id, text, self.source, title=title or None
            )
        return document_id

    @property
    def documents(self) -> tuple[Document, ...]:
        """The documents so far."""
        return tuple(self._documents.values())

    def finish(self, name: str, format_name: str, sha256: str, task: Task) -> EvalDataset:
        """Returns the set.

        Args:
            name: Of the set.
            format_name: What it was read as.
            sha256: Of the bytes that were read.
            task: How answers are judged.

        Raises:
            InputError: It has no question.
        """
        if not self._items:
            raise InputError(f"{self.source!r} holds no question")
        items = tuple(self._items.values())
        return EvalDataset(name, format_name, self.source, sha256, task, items, self.documents)


def field(
    row: Mapping[str, Any], name: str, where: str, kind: type | tuple[type, ...] = str
) -> Any:
    """Returns a field of a row.

    Args:
        row: As read.
        name: Of the field.
        where: The row, for messages.
        kind: What it must be.

    Raises:
        InputError: It is missing or of another type.
    """
    if name not in row:
        raise InputError(f"{where}: the field {name!r} is missing")
    value = row[name]
    if not isinstance(value, kind):
        raise InputError(f"{where}: {name} has the wrong type: {value!r:.80}")
    return value


def joined(parts: Sequence[str]) -> str:
    """Returns paragraphs as one text.

    Args:
        parts: The paragraphs.
    """
    return "\n\n".join(part.strip() for part in parts if part.strip())
