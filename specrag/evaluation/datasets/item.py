"""What every evaluation set becomes: questions with right answers, and the documents behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from specrag.retrieval.document import Document

Task = Literal["short_answer", "choice", "number", "code", "open"]
"""How an answer is judged: against short texts, as one of ``choices``, by its last number, by
running it, or not at all (prompts for speed)."""


@dataclass(frozen=True, slots=True)
class EvalItem:
    """One question.

    Attributes:
        id: Unique in its set.
        question: What is asked, as the user would type it.
        answers: Right answers, any of them will do; empty where the set has none.
        category: Group that figures are also reported for; empty for sets without groups.
        documents: Ids of the set's documents that hold the answer; empty where that is unknown.
        grades: How relevant each of ``documents`` is, more is better; empty without grades.
        turns: Further user turns, for conversations.
        choices: The answers that are allowed, for ``choice`` sets.
        metadata: Further facts of the set, such as popularity.
    """

    id: str
    question: str
    answers: tuple[str, ...] = ()
    category: str = ""
    documents: tuple[str, ...] = ()
    grades: Mapping[str, float] = field(default_factory=dict)
    turns: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    metadata: Mapping[str, str | float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EvalDataset:
    """One evaluation set.

    Attributes:
        name: Short, such as ``xquad.en``.
        format: Name of the format that it was read as, such as ``squad``.
        source: Where it came from: a path or a hub name.
        sha256: Of the bytes that were read, so that two reports can be told to be of one set.
        task: How answers are judged.
        items: The questions, in the order of the file.
        documents: The set's own documents, to be indexed; empty for sets that come without.
    """

    name: str
    format: str
    source: str
    sha256: str
    task: Task
    items: tuple[EvalItem, ...]
    documents: tuple[Document, ...] = ()
