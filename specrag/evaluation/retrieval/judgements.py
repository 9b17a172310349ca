"""Which documents answer a question, and how well, as a set judges them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from specrag.errors import ConfigError, InputError
from specrag.evaluation.datasets.item import EvalDataset, EvalItem


def relevance(item: EvalItem) -> Mapping[str, float]:
    """Returns the documents that answer a question with their grades, all of them above 0.

    Args:
        item: Of any set; where it has no grades, every document of it counts 1.
    """
    return {document: item.grades.get(document, 1.0) for document in item.documents}


def judged(dataset: EvalDataset) -> EvalDataset:
    """Returns a set without the questions that no document is known to answer.

    Args:
        dataset: Of any format.

    Raises:
        InputError: That is all of them.
    """
    items = tuple(item for item in dataset.items if item.documents)
    if not items:
        raise InputError(
            f"the set {dataset.name!r} does not say which documents answer its questions",
            hint="retrieval is measured on sets with documents or judgements, such as SQuAD, "
            "PopQA with passages, BEIR folders and Cranfield",
        )
    return replace(dataset, items=items)


def left_out(dataset: EvalDataset) -> list[str]:
    """Returns a note of the questions that ``judged`` leaves out, none where it keeps all.

    Args:
        dataset: The whole set.
    """
    count = sum(not item.documents for item in dataset.items)
    return [f"left out {count} questions without a relevant document"] if count else []


def has_several(dataset: EvalDataset) -> bool:
    """Tells whether a question has more than one relevant document.

    Where none has, precision and success follow from recall.

    Args:
        dataset: Of any format.
    """
    return any(len(item.documents) > 1 for item in dataset.items)


def num_judgements(dataset: EvalDataset) -> int:
    """Returns how many pairs of a question and a relevant document there are.

    Args:
        dataset: Of any format.
    """
    return sum(len(item.documents) for item in dataset.items)


def num_absent(dataset: EvalDataset, indexed: Collection[str]) -> int:
    """Returns how many relevant documents cannot be found, for they are not in the index.

    Args:
        dataset: The questions.
        indexed: Ids of the documents in the index.

    Raises:
        ConfigError: None of them can be.
    """
    wanted = {document for item in dataset.items for document in item.documents}
    absent = wanted.difference(indexed)
    if wanted and absent == wanted:
        raise ConfigError(
            f"none of the {len(wanted)} relevant documents of the set {dataset.name!r} is among "
            f"the {len(indexed)} that are indexed, such as {min(wanted)!r}",
            hint="index the documents of the set, beside others if you like",
        )
    return len(absent)
