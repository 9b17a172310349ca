"""Sets of short answers: SQuAD and XQuAD, NQ-open, PopQA, HotpotQA and 2Wiki, PubMedQA."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specrag.errors import InputError
from specrag.evaluation.datasets.draft import Draft, field, joined
from specrag.evaluation.datasets.files import Row, texts


def read_squad(draft: Draft, content: Mapping[str, Any]) -> None:
    """Reads SQuAD 1.1 and 2.0 and XQuAD: articles of paragraphs with questions.

    Args:
        draft: Takes the questions and paragraphs.
        content: Of the JSON file.
    """
    number = 0
    for article in field(content, "data", repr(draft.source), list):
        for paragraph in field(article, "paragraphs", draft.where(number + 1), list):
            where = f"a paragraph near {draft.where(number + 1)}"
            title = str(article.get("title", ""))
            place = draft.document(title, field(paragraph, "context", where))
            for asked in field(paragraph, "qas", where, list):
                number += 1
                answers = field(asked, "answers", draft.where(number), list)
                said = [field(answer, "text", draft.where(number)) for answer in answers]
                draft.add(
                    number,
                    asked.get("id"),
                    asked.get("question"),
                    answers=tuple(dict.fromkeys(said)),
                    documents=(place,) if said else (),
                )


def read_squad_rows(draft: Draft, rows: Sequence[Row]) -> None:
    """Reads SQuAD as the hub has it: one row a question with its context.

    Args:
        draft: Takes the questions and paragraphs.
        rows: With ``question``, ``context`` and ``answers`` of ``text``.
    """
    for number, row in enumerate(rows, 1):
        where = draft.where(number)
        place = draft.document(str(row.get("title", "")), field(row, "context", where))
        said = texts(field(row, "answers", where, dict).get("text"), where, "answers.text")
        draft.add(
            number,
            row.get("id"),
            row.get("question"),
            answers=tuple(dict.fromkeys(said)),
            documents=(place,) if said else (),
        )


def read_nq_open(draft: Draft, rows: Sequence[Row]) -> None:
    """Reads NQ-open: a question and a list of answers, without documents.

    Args:
        draft: Takes the questions.
        rows: With ``question`` and ``answer``.
    """
    for number, row in enumerate(rows, 1):
        where = draft.where(number)
        answers = texts(field(row, "answer", where, (list, str)), where, "answer")
        draft.add(number, row.get("id"), row.get("question"), answers=answers)


def read_popqa(draft: Draft, rows: Sequence[Row]) -> None:
    """Reads PopQA: the original table, or JSON with passages beside each question.

    Args:
        draft: Takes the questions and passages.
        rows: With ``question``, ``possible_answers`` and ``s_pop``.
    """
    for number, row in enumerate(rows, 1):
        where = draft.where(number)
        answers = texts(field(row, "possible_answers", where, (str, list)), where, "answers")
        supporting = []
        for passage in row.get("paragraphs") or ():
            title = str(passage.get("title", ""))
            place = draft.document(title, field(passage, "text", where))
            if passage.get("is_supporting"):
                supporting.append(place)
        draft.add(
            number,
            row.get("id"),
            row.get("question"),
            answers=answers,
            category=str(row.get("prop", "")),
            documents=tuple(dict.fromkeys(supporting)),
            metadata={"popularity": _number(row.get("s_pop"), where)},
        )


def read_hotpotqa(draft: Draft, rows: Sequence[Row]) -> None:
    """Reads HotpotQA, 2WikiMultihopQA and their like: questions over several titled paragraphs.

    Args:
        draft: Takes the questions and paragraphs.
        rows: With ``question``, ``answer``, ``context`` and ``supporting_facts``, either as pairs
            or as the hub's columns.
    """
    for number, row in enumerate(rows, 1):
        where = draft.where(number)
        places = {}
        for title, sentences in _pairs(row.get("context"), "sentences", where):
            text = " ".join(sentence.strip() for sentence in sentences)
            places[title] = draft.document(title, text)
        wanted = {title for title, _ in _pairs(row.get("supporting_facts"), "sent_id", where)}
        draft.add(
            number,
            row.get("_id", row.get("id")),
            row.get("question"),
            answers=texts(row.get("answer"), where, "answer"),
            category=str(row.get("type", "")),
            documents=tuple(places[title] for title in places if title in wanted),
        )


def read_pubmedqa(draft: Draft, content: Mapping[str, Any], split: str = "") -> None:
    """Reads PubMedQA: yes, no or maybe, each with the abstract that tells.

    Args:
        draft: Takes the questions and abstracts.
        content: Of the JSON file, by PubMed id.
        split: ``test`` keeps the questions of ``test_ground_truth.json`` beside the file.
    """
    kept = set(content)
    if split:
        beside = Path(draft.source).parent / f"{split}_ground_truth.json"
        try:
            kept = set(json.loads(beside.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read the split {str(beside)!r}: {error}") from error
    for number, (name, row) in enumerate(content.items(), 1):
        where = draft.where(number)
        place = draft.document("", joined(field(row, "CONTEXTS", where, list)), f"pubmed-{name}")
        if name not in kept:
            continue
        draft.add(
            number,
            name,
            row.get("QUESTION"),
            answers=(field(row, "final_decision", where),),
            choices=("yes", "no", "maybe"),
            documents=(place,),
        )


def _pairs(value: Any, second: str, where: str) -> list[tuple[str, Any]]:
    """Returns title and content of each paragraph or fact, from pairs or from columns."""
    try:
        if isinstance(value, Mapping):
            return list(zip(value["title"], value[second], strict=True))
        return [(str(title), rest) for title, rest in value or ()]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{where}: context or supporting facts cannot be read: {error}") from error


def _number(value: Any, where: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: s_pop is no number: {value!r}") from error
