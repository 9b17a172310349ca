"""Sets of short answers: SQuAD and XQuAD, NQ-open, PopQA, HotpotQA and 2Wiki, PubMedQA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specrag.errors import InputError, suggest
from specrag.evaluation.datasets.draft import Draft, field, joined, label
from specrag.evaluation.datasets.files import Row, json_of, read_file, texts

PUBMEDQA_CHOICES = ("yes", "no", "maybe")


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
            title = label(article, "title", where)
            place = draft.paragraph(title, field(paragraph, "context", where), where)
            for asked in field(paragraph, "qas", where, list):
                number += 1
                _add_squad(draft, number, asked, place)


def _add_squad(draft: Draft, number: int, asked: Mapping[str, Any], place: str) -> None:
    where = draft.where(number)
    listed = field(asked, "answers", where, list)
    impossible = asked.get("is_impossible") is True
    said = () if impossible else texts([field(each, "text", where) for each in listed], where, "")
    draft.add(
        number,
        asked.get("id"),
        asked.get("question"),
        answers=tuple(dict.fromkeys(said)),
        documents=(place,) if said else (),
        metadata={"is_impossible": 1.0} if impossible else {},
    )


def read_squad_rows(draft: Draft, rows: Sequence[Row]) -> None:
    """Reads SQuAD as the hub has it: one row a question with its context.

    Args:
        draft: Takes the questions and paragraphs.
        rows: With ``question``, ``context`` and ``answers`` of ``text``.
    """
    for number, row in enumerate(rows, 1):
        where = draft.where(number)
        title, text = label(row, "title", where), field(row, "context", where)
        place = draft.paragraph(title, text, where)
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
        for passage in field(row, "paragraphs", where, list) if row.get("paragraphs") else ():
            text = field(passage, "text", where)
            place = draft.document(label(passage, "title", where), text)
            if passage.get("is_supporting") and place is not None:
                supporting.append(place)
        draft.add(
            number,
            row.get("id"),
            row.get("question"),
            answers=answers,
            category=label(row, "prop", where),
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
        places = []
        for title, sentences in _pairs(row, "context", "sentences", where):
            places.append((title, draft.document(title, joined(sentences, where, " "))))
        wanted = {title for title, _ in _pairs(row, "supporting_facts", "sent_id", where)}
        holding = [place for title, place in places if title in wanted and place is not None]
        level = label(row, "level", where)
        draft.add(
            number,
            row.get("_id", row.get("id")),
            row.get("question"),
            answers=texts(row.get("answer"), where, "answer"),
            category=label(row, "type", where),
            documents=tuple(dict.fromkeys(holding)),
            metadata={"level": level} if level else {},
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
        named = json_of(read_file(beside))
        if not isinstance(named, dict | list) or not all(isinstance(name, str) for name in named):
            raise InputError(f"{str(beside)!r} is no object or list of ids")
        kept = set(named)
        if absent := kept - set(content):
            raise InputError(f"{str(beside)!r} names {min(absent)!r}, not in {draft.source!r}")
    for number, (name, row) in enumerate(content.items(), 1):
        where = f"{draft.where(number)} ({name})"
        text = joined(field(row, "CONTEXTS", where, list), where)
        place = draft.document("", text, f"pubmed-{name}")
        if place is None:
            raise InputError(f"{where}: CONTEXTS is blank")
        decision = field(row, "final_decision", where)
        if decision not in PUBMEDQA_CHOICES:
            allowed = suggest(decision, PUBMEDQA_CHOICES)
            raise InputError(f"{where}: unknown final_decision {decision!r}; {allowed}")
        if name not in kept:
            continue
        draft.add(
            number,
            name,
            row.get("QUESTION"),
            where=where,
            answers=(decision,),
            choices=PUBMEDQA_CHOICES,
            documents=(place,),
        )


def _pairs(row: Row, name: str, second: str, where: str) -> list[tuple[str, Any]]:
    """Returns title and content of each paragraph or fact, from pairs or from columns."""
    value = row.get(name)
    try:
        if isinstance(value, Mapping):
            found = list(zip(value["title"], value[second], strict=True))
        else:
            found = [(title, rest) for title, rest in value or ()]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{where}: {name} cannot be read: {error!r}") from error
    for title, rest in found:
        if not isinstance(title, str) or (second == "sentences" and not isinstance(rest, list)):
            raise InputError(f"{where}: {name} has {(title, rest)!r:.80}")
    return found


def _number(value: Any, where: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: s_pop is no number: {value!r}") from error
