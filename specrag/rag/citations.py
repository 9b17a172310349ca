"""Which passages an answer stands on, and the sentence of each that shows it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specrag.retrieval.document import ScoredPassage
from specrag.retrieval.sentences import Span, sentence_spans

_WORD = re.compile(r"[\u3400-\u9fff]|[^\W_]+(?:[._'-][^\W_]+)*")
_COMMON = frozenset(
    _WORD.findall(
        "a about also an and any are as at be because been but by can could did do does for from "
        "had has have how i if in into is it its may me more most my no not of on one or other our "
        "out so some such than that the their them then there these they this those to up use used "
        "was we were what when where which who why will with would you your"
    )
)
MIN_SUPPORT = 0.3
"""Share of an answer's words that a passage must hold to be cited beside the best one."""

_QUESTION_WEIGHT = 0.5  # a sentence that answers repeats words of the question, but fewer


@dataclass(frozen=True, slots=True)
class Citation:
    """A passage that supports the answer.

    Attributes:
        n: Number, counted from 1.
        document: The document's name.
        passage: Id of the passage in the index.
        page: Page, where the format has pages.
        start: Offset in the document's text where the quote begins.
        end: Offset after it.
        score: Similarity of the passage to the question, from -1 to 1.
        quote: ``document.text[start:end]``, the sentence nearest to the answer.
    """

    n: int
    document: str
    passage: int
    page: int | None
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
    reliably, the text itself does. The best passage is always cited.

    Args:
        question: What was asked.
        answer: The answer's text.
        passages: The passages in the prompt, best first.

    Returns:
        Citations, best supported first; none when there were no passages.
    """
    if not passages:
        return ()
    weights = _rarity(passages)
    wanted = _words(answer)
    support = [_share(wanted, _words(found.passage.text), weights) for found in passages]
    order = sorted(range(len(passages)), key=lambda i: (-round(support[i], 6), i))
    kept = [i for i in order if i == order[0] or support[i] >= max(MIN_SUPPORT, 0.6 * max(support))]
    return tuple(
        _citation(n, passages[i], wanted, _words(question), weights)
        for n, i in enumerate(kept, start=1)
    )


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
        start=passage.start + start,
        end=passage.start + end,
        score=round(found.score, 4),
        quote=passage.text[start:end],
    )


def _best_sentence(
    text: str, answer: set[str], question: set[str], weights: dict[str, float]
) -> Span:
    spans = sentence_spans(text, 0, len(text)) or [(0, len(text))]

    def closeness(span: Span) -> float:
        words = _words(text[slice(*span)])
        if not words:
            return 0.0
        shared = _mass(answer & words, weights)
        shared += _QUESTION_WEIGHT * _mass(question & words, weights)
        return shared / math.sqrt(_mass(words, weights))  # long sentences share words by chance

    return max(spans, key=closeness)


def _words(text: str) -> set[str]:
    return {word for word in _WORD.findall(text.lower()) if word not in _COMMON}


def _rarity(passages: Sequence[ScoredPassage]) -> dict[str, float]:
    counts = Counter(word for found in passages for word in _words(found.passage.text))
    return {word: 1.0 / count for word, count in counts.items()}


def _mass(words: set[str], weights: dict[str, float]) -> float:
    return sum(weights.get(word, 1.0) for word in words)


def _share(wanted: set[str], held: set[str], weights: dict[str, float]) -> float:
    return _mass(wanted & held, weights) / _mass(wanted, weights) if wanted else 0.0
