"""Which passages an answer stands on, and the sentence of each that shows it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specrag.retrieval.document import ScoredPassage
from specrag.retrieval.sentences import Span, sentence_spans
from specrag.retrieval.terms import content_words

MIN_SUPPORT = 0.3
"""Share of an answer's words that a passage must hold to be cited beside these two."""

_SUPPORT_WEIGHT = 0.5  # a weak answer shares words with any passage; similarity orders most
_QUESTION_WEIGHT = 1.0  # a sentence that answers repeats words of the question


@dataclass(frozen=True, slots=True)
class Citation:
    """A passage that supports the answer.

    Attributes:
        n: Number, counted from 1.
        document: The document's name.
        passage: Id of the passage in the index.
        page: Page, where the format has pages.
        line: Line of the file on which the quote begins, where the format has lines.
        start: Offset in the document's text where the quote begins.
        end: Offset after it.
        score: Similarity of the passage to the question, from -1 to 1.
        quote: ``document.text[start:end]``, the sentence nearest to the answer.
    """

    n: int
    document: str
    passage: int
    page: int | None
    line: int | None
    start: int
    end: int
    score: float
    quote: str

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON shape of the citation."""
        return {name: getattr(self, name) for name in self.__slots__}


def cite(question: str, answer: str, passages: Sequence[ScoredPassage]) -> tuple[Citation, ...]:
    """Aligns an answer with the passages that it was given.

    Support is measured by shared words, rare ones counting more; a small model names no sources
    reliably, the text itself does. The best supported passage and the one nearest to the question
    are always cited. A sentence that overlapping passages share is cited once.

    Args:
        question: What was asked.
        answer: The answer's text.
        passages: The passages in the prompt, best first.

    Returns:
        Citations, best first by support and similarity together; none without passages.
    """
    if not passages:
        return ()
    weights = _rarity(passages)
    wanted = content_words(answer)
    support = [_share(wanted, content_words(found.passage.text), weights) for found in passages]
    nearest = max(found.score for found in passages)
    merit = [
        _SUPPORT_WEIGHT * share + _ratio(found.score, nearest)
        for share, found in zip(support, passages, strict=True)
    ]
    best = max(range(len(passages)), key=lambda i: (support[i], -i))
    least = max(MIN_SUPPORT, 0.6 * support[best])
    order = sorted(range(len(passages)), key=lambda i: (-round(merit[i], 6), i))
    kept = [i for i in order if i in (0, best) or support[i] >= least]
    cited: dict[tuple[str, int, int], Citation] = {}
    for i in kept:
        citation = _citation(len(cited) + 1, passages[i], wanted, content_words(question), weights)
        cited.setdefault((citation.document, citation.start, citation.end), citation)
    return tuple(cited.values())


def _citation(
    n: int,
    found: ScoredPassage,
    answer: set[str],
    question: set[str],
    weights: dict[str, float],
) -> Citation:
    passage = found.passage
    start, end = _best_sentence(passage.text, answer, question, weights)
    return Citation(
        n=n,
        document=passage.document,
        passage=passage.id,
        page=passage.page,
        line=passage.line and passage.line + passage.text.count("\n", 0, start),
        start=passage.start + start,
        end=passage.start + end,
        score=round(found.score, 4),
        quote=passage.text[start:end],
    )


def _best_sentence(
    text: str, answer: set[str], question: set[str], weights: dict[str, float]
) -> Span:
    spans = [_without_heading(text, span) for span in sentence_spans(text, 0, len(text))]
    spans = spans or [(0, len(text))]

    def closeness(span: Span) -> float:
        words = content_words(text[slice(*span)])
        if not words:
            return 0.0
        shared = _mass(answer & words, weights)
        shared += _QUESTION_WEIGHT * _mass(question & words, weights)
        return shared / math.sqrt(_mass(words, weights))  # long sentences share words by chance

    return max(spans, key=closeness)


def _without_heading(text: str, span: Span) -> Span:
    """A heading has no full stop, so it comes with the sentence below; a quote begins there."""
    cut = text.rfind("\n\n", *span)
    if cut < 0:
        return span
    while text[cut].isspace():  # a sentence span ends in text, so this stops inside it
        cut += 1
    return cut, span[1]


def _ratio(value: float, most: float) -> float:
    return value / most if most > 0 else 0.0


def _rarity(passages: Sequence[ScoredPassage]) -> dict[str, float]:
    counts = Counter(word for found in passages for word in content_words(found.passage.text))
    return {word: 1.0 / count for word, count in counts.items()}


def _mass(words: set[str], weights: dict[str, float]) -> float:
    return sum(weights.get(word, 1.0) for word in words)


def _share(wanted: set[str], held: set[str], weights: dict[str, float]) -> float:
    return _mass(wanted & held, weights) / _mass(wanted, weights) if wanted else 0.0
