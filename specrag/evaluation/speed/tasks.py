"""Kinds of work, with the acceptance that is usual for each in the field."""

from __future__ import annotations

from collections.abc import Iterable

USUAL: dict[str, tuple[float, float]] = {
    "code": (0.85, 0.92),
    "question answering": (0.75, 0.85),
    "translation": (0.80, 0.88),
    "maths": (0.60, 0.70),
    "creative writing": (0.45, 0.60),
}
"""Acceptance by task, as practitioners report it for a well matched draft model."""

TASKS: dict[str, str | None] = {
    "coding": "code",
    "humaneval": "code",
    "mbpp": "code",
    "qa": "question answering",
    "rag": "question answering",
    "squad": "question answering",
    "xquad": "question answering",
    "nq_open": "question answering",
    "popqa": "question answering",
    "hotpotqa": "question answering",
    "pubmedqa": "question answering",
    "translation": "translation",
    "math": "maths",
    "math_reasoning": "maths",
    "gsm8k": "maths",
    "writing": "creative writing",
    "roleplay": "creative writing",
    # No range is usual for these.
    "summarization": None,
    "reasoning": None,
    "extraction": None,
    "stem": None,
    "humanities": None,
    "mt_bench": None,
}
"""Names of categories and evaluation sets, and the task that each is."""

_BY_JUDGEMENT = {
    "code": "code",
    "number": "maths",
    "short_answer": "question answering",
    "choice": "question answering",
}


def task_of(names: Iterable[str], judged: str = "open") -> str | None:
    """Returns the task of a question, None for one that no range is usual for.

    Args:
        names: What it belongs to, the most telling name first; the first one known decides.
        judged: How answers of its set are judged, which tells where no name does.
    """
    for name in names:
        if (key := name.lower()) in TASKS:
            return TASKS[key]
    return _BY_JUDGEMENT.get(judged)
