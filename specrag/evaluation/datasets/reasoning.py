"""Sets that need no documents: GSM8K, HumanEval, MBPP, and prompts such as Spec-Bench's."""

from __future__ import annotations

import re
from collections.abc import Sequence

from specrag.errors import InputError
from specrag.evaluation.datasets.draft import Draft, field
from specrag.evaluation.datasets.files import Row, texts

SPEC_BENCH = ("mt_bench", "translation", "summarization", "qa", "math_reasoning", "rag")
"""Spec-Bench's groups; the eight categories of MT-bench are one of them."""


def read_gsm8k(draft: Draft, rows: Sequence[Row]) -> None:
    """Reads GSM8K: the number behind ``####`` is the answer.

    Args:
        draft: Takes the questions.
        rows: With ``question`` and ``answer``.
    """
    for number, row in enumerate(rows, 1):
        worked = field(row, "answer", draft.where(number))
        _, mark, final = worked.rpartition("####")
        if not mark or not final.strip():
            raise InputError(f"{draft.where(number)}: the answer has no '#### number'")
        draft.add(number, row.get("id"), row.get("question"), answers=(final.strip(),))


def read_humaneval(draft: Draft, rows: Sequence[Row]) -> None:
    """Reads HumanEval: functions to complete, with tests.

    Args:
        draft: Takes the questions.
        rows: With ``task_id``, ``prompt``, ``entry_point`` and ``test``.
    """
    for number, row in enumerate(rows, 1):
        where = draft.where(number)
        facts = {name: field(row, name, where) for name in ("prompt", "entry_point", "test")}
        question = f"Complete this Python function:\n\n```python\n{facts['prompt'].rstrip()}\n```"
        draft.add(number, row.get("task_id"), question, category="code", metadata=facts)


def read_mbpp(draft: Draft, rows: Sequence[Row]) -> None:
    """Reads MBPP as instructions with tests.

    Args:
        draft: Takes the questions.
        rows: With ``id``, ``input`` and ``test``.
    """
    for number, row in enumerate(rows, 1):
        called = re.search(r"assert (\w+)\(", str(row.get("input", "")))
        facts = {
            "test": field(row, "test", draft.where(number)),
            "entry_point": called[1] if called else "",
        }
        draft.add(number, row.get("id"), row.get("input"), category="code", metadata=facts)


def read_spec_bench(draft: Draft, rows: Sequence[Row]) -> None:
    """Reads Spec-Bench and MT-bench: prompts of several kinds, some with a second turn.

    Args:
        draft: Takes the prompts; ``metadata["group"]`` is Spec-Bench's own grouping.
        rows: With ``question_id``, ``category`` and ``turns``.
    """
    for number, row in enumerate(rows, 1):
        where = draft.where(number)
        listed = field(row, "turns", where, list)
        turns = texts(listed, where, "turns")
        if not turns or len(turns) < len(listed):
            raise InputError(f"{where}: turns is empty or has a blank one")
        category = field(row, "category", where)
        draft.add(
            number,
            row.get("question_id"),
            turns[0],
            turns=turns[1:],
            category=category,
            metadata={"group": category if category in SPEC_BENCH[1:] else SPEC_BENCH[0]},
        )
