"""Retrieval collections in folders: BEIR's layout, and Cranfield's."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specrag.errors import InputError
from specrag.evaluation.datasets.draft import Draft, field, label
from specrag.evaluation.datasets.files import RawFile, Row, read_file, rows_of

# 5 is "of no interest"; no line of the collection has it.
_CRANFIELD_GRADES = {"1": 4.0, "-1": 4.0, "2": 3.0, "3": 2.0, "4": 1.0, "5": 0.0}


def is_beir(folder: Path) -> bool:
    """Tells whether a folder is laid out as BEIR's sets are.

    Args:
        folder: To look into.
    """
    return (
        _first(folder, "corpus.jsonl") is not None and _first(folder, "queries.jsonl") is not None
    )


def is_cranfield(folder: Path) -> bool:
    """Tells whether a folder holds the Cranfield collection.

    Args:
        folder: To look into.
    """
    return all((folder / name).is_file() for name in ("cran.all.1400", "cran.qry", "cranqrel"))


def read_beir(draft: Draft, folder: Path, split: str = "") -> str:
    """Reads a BEIR folder: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/SPLIT.tsv``.

    Args:
        draft: Takes queries and documents.
        folder: The set.
        split: Of the judgements; ``test`` by default.

    Returns:
        SHA-256 over its files.
    """
    names = ("corpus.jsonl", "queries.jsonl", f"qrels/{split or 'test'}.tsv")
    corpus, queries, judgements = (_file(folder, name) for name in names)
    for where, row in rows_of(corpus).placed():
        title = label(row, "title", where)
        draft.document(title, field(row, "text", where) or title, _id(row, where))
    known = {document.id for document in draft.documents}
    relevant: dict[str, dict[str, float]] = {}
    for where, row in rows_of(judgements).placed():
        place, score = field(row, "corpus-id", where), _score(row, where)
        if score > 0 and place in known:
            _grade(relevant.setdefault(field(row, "query-id", where), {}), place, score)
    for number, (where, row) in enumerate(rows_of(queries).placed(), 1):
        name = _id(row, where)
        if name in relevant:
            draft.add(number, name, row.get("text"), where=where, **_judged(relevant[name]))
    return _digest(corpus, queries, judgements)


def read_cranfield(draft: Draft, folder: Path) -> str:
    """Reads the Cranfield collection; judgements count queries by their order, not by their number.

    Its codes run from 1, a complete answer, to 4, of minimum interest; the grades are 4 to 1. The
    document that a query was written about has the code 1, or -1 in other copies of the set.

    Args:
        draft: Takes queries and documents.
        folder: With ``cran.all.1400``, ``cran.qry`` and ``cranqrel``.

    Returns:
        SHA-256 over its files.
    """
    corpus, queries, judgements = (
        read_file(folder / name) for name in ("cran.all.1400", "cran.qry", "cranqrel")
    )
    for _, name, parts in _marked(corpus):
        title = " ".join(parts.get("T", "").split())
        draft.document(title, parts.get("W", "").strip(), name)
    known = {document.id for document in draft.documents}
    asked = _marked(queries)
    relevant: dict[int, dict[str, float]] = {}
    for query, document, grade in _judgements(judgements, len(asked)):
        if grade > 0 and document in known:  # a document without text cannot be found
            _grade(relevant.setdefault(query, {}), document, grade)
    for number, (where, name, parts) in enumerate(asked, 1):
        question = " ".join(parts.get("W", "").split())
        draft.add(number, name, question, where=where, **_judged(relevant.get(number, {})))
    return _digest(corpus, queries, judgements)


def _grade(grades: dict[str, float], document: str, grade: float) -> None:
    """Notes a grade; of two for the same pair the better one holds."""
    grades[document] = max(grade, grades.get(document, 0.0))


def _judged(grades: Mapping[str, float]) -> dict[str, Any]:
    return {"documents": tuple(grades), "grades": grades}


def _judgements(file: RawFile, queries: int) -> list[tuple[int, str, float]]:
    """Returns query, document and grade of each line; a line without a code says relevant, no more.

    A query beyond the last means that the two files do not belong together.
    """
    found = []
    for number, line in enumerate(file.text.split("\n"), 1):
        if not line.strip():
            continue
        match = re.fullmatch(r"\s*(\d+)\s+(\S+)(?:\s+(-1|[1-5]))?\s*", line)
        if match is None or not 1 <= int(match[1]) <= queries:
            raise InputError(
                f"line {number} of {str(file.path)!r} is no judgement of one of "
                f"{queries} queries: {line!r:.80}"
            )
        found.append((int(match[1]), match[2], _CRANFIELD_GRADES[match[3] or "4"]))
    return found


def _marked(file: RawFile) -> list[tuple[str, str, dict[str, str]]]:
    """Parts a file of SMART's format: ``.I`` begins an entry, ``.T``, ``.W`` ... its fields.

    Returns:
        The place of each entry, its name and its fields.
    """
    entries = []
    before, *blocks = re.split(r"^\.I(?=\s|\Z)", file.text, flags=re.MULTILINE)
    line = 1 + before.count("\n")
    for block in blocks:
        place = f"line {line} of {str(file.path)!r}"
        line += block.count("\n")
        head, _, rest = block.partition("\n")
        if head.strip():
            pieces = re.split(r"^\.([A-Z])\s*$", rest, flags=re.MULTILINE)[1:]
            fields = dict(zip(pieces[::2], pieces[1::2], strict=True))
            entries.append((place, head.strip(), fields))
        elif rest.strip():  # the queries end with a mark that nothing follows
            raise InputError(f"{place}: .I without a number")
    if not entries:
        raise InputError(f"{str(file.path)!r} has no entry that begins with .I")
    return entries


def _id(row: Row, where: str) -> str:
    name = str(field(row, "_id", where, (str, int)))
    if not name.strip():
        raise InputError(f"{where}: _id is blank")
    return name


def _score(row: Row, where: str) -> float:
    said = field(row, "score", where)
    try:
        return float(said)
    except ValueError as error:
        raise InputError(f"{where}: score is no number: {said!r:.80}") from error


def _first(folder: Path, name: str) -> Path | None:
    paths = (folder / f"{name}{ending}" for ending in ("", ".gz", ".xz"))
    return next((path for path in paths if path.is_file()), None)


def _file(folder: Path, name: str) -> RawFile:
    return read_file(_first(folder, name) or folder / name)


def _digest(*files: RawFile) -> str:
    return hashlib.sha256("".join(file.sha256 for file in files).encode()).hexdigest()
