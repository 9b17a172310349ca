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
        places: What each row is called in messages, where it is not the source's own entry.
    """

    def __init__(self, source: str, places: Sequence[str] = ()) -> None:
        self.source = source
        self._places = places
        self._items: dict[str, EvalItem] = {}
        self._documents: dict[str, Document] = {}
        self._by_text: dict[tuple[str, str], str] = {}

    def where(self, number: int) -> str:
        """Returns how a row is called in messages.

        Args:
            number: Counted from 1.
        """
        if self._places:
            return self._places[number - 1]
        return f"entry {number} of {self.source!r}"

    def add(
        self, number: int, item_id: Any, question: Any, *, where: str = "", **fields: Any
    ) -> None:
        """Adds a question.

        Args:
            number: Of its row, counted from 1.
            item_id: As the set has it; None takes the number.
            question: What is asked.
            where: The row, for messages, where ``where(number)`` is not it.
            **fields: Of ``EvalItem``.

        Raises:
            InputError: The question is blank or no text, or its id is taken.
        """
        place = where or self.where(number)
        if not isinstance(question, str) or not question.strip():
            raise InputError(f"{place}: the question is no text or blank: {question!r:.80}")
        if not isinstance(item_id, str | int | float | None) or not str(item_id).strip():
            raise InputError(f"{place}: the id is no text or number, or blank: {item_id!r:.80}")
        name = str(number) if item_id is None else str(item_id)
        if name in self._items:
            raise InputError(f"{place}: the id {name!r} is there already")
        self._items[name] = EvalItem(name, question.strip(), **fields)

    def document(self, title: str, text: str, document_id: str | None = None) -> str | None:
        """Adds a document, unless it is there already, and returns its id.

        Args:
            title: For people; may be empty.
            text: The document.
            document_id: As the set has it; None makes one of title and text.

        Returns:
            The id; None for a text that is blank, which is left out.

        Raises:
            InputError: Another document has this id.
        """
        if not text.strip():
            return None
        if document_id is None:
            known = self._by_text.get((title, text))
            if known is not None:
                return known
            digest = hashlib.sha256(f"{title}\0{text}".encode()).hexdigest()
            document_id = f"{title or 'document'}-{digest[:8]}"
            if document_id in self._documents:  # not rare among a hundred thousand
                document_id = f"{title or 'document'}-{digest}"
            self._by_text[title, text] = document_id
        kept = self._documents.get(document_id)
        if kept is not None and kept.text != text:
            raise InputError(f"{self.source!r} has two documents with the id {document_id!r}")
        self._documents[document_id] = Document(document_id, text, self.source, title=title or None)
        return document_id

    def paragraph(self, title: str, text: str, where: str) -> str:
        """Adds the paragraph that a question is about and returns its id.

        Args:
            title: For people; may be empty.
            text: The paragraph.
            where: The row, for messages.

        Raises:
            InputError: It is blank.
        """
        place = self.document(title, text)
        if place is None:
            raise InputError(f"{where}: the context is blank")
        return place

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
        InputError: It is missing or of another type, or the row is none.
    """
    if not isinstance(row, Mapping):
        raise InputError(f"{where} is no object: {row!r:.80}")
    if name not in row:
        raise InputError(f"{where}: the field {name!r} is missing")
    value = row[name]
    if not isinstance(value, kind):
        raise InputError(f"{where}: {name} has the wrong type: {value!r:.80}")
    return value


def label(row: Mapping[str, Any], name: str, where: str) -> str:
    """Returns a field that may be missing, such as a title or category, as a text.

    Args:
        row: As read.
        name: Of the field.
        where: The row, for messages.

    Raises:
        InputError: It is neither a text nor a number.
    """
    value = row.get(name)
    if not isinstance(value, str | int | float | None):
        raise InputError(f"{where}: {name} has the wrong type: {value!r:.80}")
    return "" if value is None else str(value)


def joined(parts: Sequence[Any], where: str, between: str = "\n\n") -> str:
    """Returns paragraphs or sentences as one text.

    Args:
        parts: Texts; blank ones are left out.
        where: The row, for messages.
        between: What parts them.

    Raises:
        InputError: A part is no text.
    """
    if isinstance(parts, str) or not all(isinstance(part, str) for part in parts):
        raise InputError(f"{where}: no list of texts: {parts!r:.80}")
    return between.join(part.strip() for part in parts if part.strip())
