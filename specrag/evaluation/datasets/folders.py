"""Retrieval collections in folders: BEIR's layout, and Cranfield's."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from specrag.errors import InputError
from specrag.evaluation.datasets.draft import Draft, field
from specrag.evaluation.datasets.files import RawFile, read_file, rows_of


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
    for number, row in enumerate(rows_of(corpus), 1):
        where = f"line {number} of {str(corpus.path)!r}"
        draft.document(str(row.get("title", "")), field(row, "text", where), _id(row, where))
    known = {document.id for document in draft.documents}
    relevant: dict[str, list[str]] = {}
    for number, row in enumerate(rows_of(judgements), 1):
        where = f"row {number} of {str(judgements.path)!r}"
        place = field(row, "corpus-id", where)
        if float(field(row, "score", where)) > 0 and place in known:
            relevant.setdefault(field(row, "query-id", where), []).append(place)
    for number, row in enumerate(rows_of(queries), 1):
        name = _id(row, f"line {number} of {str(queries.path)!r}")
        if name in relevant:
            draft.add(number, name, row.get("text"), documents=tuple(relevant[name]))
    return _digest(corpus, queries, judgements)


def read_cranfield(draft: Draft, folder: Path) -> str:
    """Reads the Cranfield collection; judgements count queries by their order, not by their number.

    Args:
        draft: Takes queries and documents.
        folder: With ``cran.all.1400``, ``cran.qry`` and ``cranqrel``.

    Returns:
        SHA-256 over its files.
    """
    corpus, queries, judgements = (
        read_file(folder / name) for name in ("cran.all.1400", "cran.qry", "cranqrel")
    )
    for name, parts in _marked(corpus):
        title = " ".join(parts.get("T", "").split())
        draft.document(title, parts.get("W", "").strip(), name)
    relevant: dict[int, list[str]] = {}
    for line in judgements.text.splitlines():
        if line.strip():
            query, document, *_ = line.split()  # the grade, of 1 to 4, says how relevant it is
            relevant.setdefault(int(query), []).append(document)
    for number, (name, parts) in enumerate(_marked(queries), 1):
        question = " ".join(parts.get("W", "").split())
        draft.add(number, name, question, documents=tuple(relevant.get(number, ())))
    return _digest(corpus, queries, judgements)


def _marked(file: RawFile) -> list[tuple[str, dict[str, str]]]:
    """Parts a file of SMART's format: ``.I`` begins an entry, ``.T``, ``.W`` ... its fields."""
    entries = []
    for block in re.split(r"^\.I\s+", file.text, flags=re.MULTILINE)[1:]:
        head, _, rest = block.partition("\n")
        if not head.strip():
            continue  # the queries end with a mark that nothing follows
        pieces = re.split(r"^\.([A-Z])\s*$", rest, flags=re.MULTILINE)[1:]
        entries.append((head.strip(), dict(zip(pieces[::2], pieces[1::2], strict=True))))
    if not entries:
        raise InputError(f"{str(file.path)!r} has no entry that begins with .I")
    return entries


def _id(row: object, where: str) -> str:
    assert isinstance(row, dict), "rows are objects"
    return str(field(row, "_id", where, (str, int)))


def _first(folder: Path, name: str) -> Path | None:
    paths = (folder / f"{name}{ending}" for ending in ("", ".gz", ".xz"))
    return next((path for path in paths if path.is_file()), None)


def _file(folder: Path, name: str) -> RawFile:
    return read_file(_first(folder, name) or folder / name)


def _digest(*files: RawFile) -> str:
    return hashlib.sha256("".join(file.sha256 for file in files).encode()).hexdigest()
