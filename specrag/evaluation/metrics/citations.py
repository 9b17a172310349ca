"""Whether what is cited holds the answer. A quote counts as holding it when the answer is in it."""

from __future__ import annotations

from collections.abc import Sequence

from specrag.evaluation.metrics.texts import contains


def holds_answer(text: str, answers: Sequence[str]) -> bool:
    """Tells whether an answer stands in a text, normalised and as whole tokens.

    Args:
        text: A quote or a passage.
        answers: Right answers.
    """
    return contains(text, answers) > 0


def citation_precision(quotes: Sequence[tuple[str, str]], answers: Sequence[str]) -> float | None:
    """Returns the share of cited quotes that hold an answer.

    Args:
        quotes: Id of the passage and the quote, for each citation.
        answers: Right answers.

    Returns:
        None when nothing was cited, or no answer is known.
    """
    if not quotes or not answers:
        return None
    return sum(holds_answer(quote, answers) for _, quote in quotes) / len(quotes)


def citation_recall(
    quotes: Sequence[tuple[str, str]],
    passages: Sequence[tuple[str, str]],
    answers: Sequence[str],
) -> float | None:
    """Returns, of the passages that hold an answer, the share that is quoted with it.

    Args:
        quotes: Id of the passage and the quote, for each citation.
        passages: Id and text of each passage that the answer was written from.
        answers: Right answers.

    Returns:
        None when no passage holds one.
    """
    holding = {passage for passage, text in passages if holds_answer(text, answers)}
    if not holding:
        return None
    quoted = {passage for passage, quote in quotes if holds_answer(quote, answers)}
    return len(holding & quoted) / len(holding)
