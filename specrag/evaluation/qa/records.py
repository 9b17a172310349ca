"""One record a question and mode: the answer, what it stands on, and how good it is.

The field names are those that RAG evaluation tools read (``user_input``, ``response``,
``reference``, ``retrieved_contexts`` ... as in ragas).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specrag.evaluation.datasets.item import EvalDataset, EvalItem, Task
from specrag.evaluation.metrics.citations import citation_precision, citation_recall, holds_answer
from specrag.evaluation.metrics.judge import judged
from specrag.evaluation.metrics.passages import recall
from specrag.evaluation.qa.answers import Raw
from specrag.gate.policy import GateDecision

Record = dict[str, Any]

_STAGES = ("prefill_ms", "decode_ms", "lookup_ms", "gate_ms", "total_ms")


def records_of(
    dataset: EvalDataset,
    raws: Sequence[Raw],
    decisions: Mapping[str, GateDecision],
    modes: Sequence[str],
    *,
    run_code: bool = False,
) -> list[Record]:
    """Makes the records of all questions and modes.

    Args:
        dataset: The questions.
        raws: Their answers by branch.
        decisions: The gate's by question, for mode ``auto``.
        modes: Those to report.
        run_code: Whether answers that are programs are run.
    """
    kept = {(raw["id"], raw["mode"]): raw for raw in raws}
    made: dict[tuple[str, str], Record] = {}
    for item in dataset.items:
        for branch in ("never", "always"):
            if (item.id, branch) in kept:
                raw = kept[item.id, branch]
                made[item.id, branch] = _record(dataset, item, raw, run_code)
    return [
        made[item.id, mode]
        if mode != "auto"
        else _chosen(made, item.id, kept[item.id, "never"], decisions[item.id])
        for item in dataset.items
        for mode in modes
    ]


def _record(dataset: EvalDataset, item: EvalItem, raw: Raw, run_code: bool) -> Record:
    answer = raw["answer"]
    return {
        "id": item.id,
        "mode": raw["mode"],
        "category": item.category,
        "user_input": item.question,
        "response": answer["answer"],
        "reference": item.answers[0] if item.answers else None,
        "references": list(item.answers),
        "retrieved_contexts": [passage["text"] for passage in raw["passages"]],
        "retrieved_context_ids": [passage["document"] for passage in raw["passages"]],
        "reference_context_ids": list(item.documents),
        "citations": answer["citations"],
        "gate": answer["gate"],
        "scores": {
            **judged(dataset.task, item, answer["answer"], run_code=run_code),
            **_grounding(item, raw, dataset.task),
        },
        "usage": answer["usage"],
        "latency_ms": {stage: answer["timings"][stage] for stage in _STAGES},
        "speculation": answer["speculation"],
        "finish_reason": answer["finish_reason"],
    }


def _grounding(item: EvalItem, raw: Raw, task: Task) -> dict[str, float | None]:
    """Measures retrieval and citations; there is nothing to measure closed book.

    Only short answers are looked for in passages: a yes or a number stands there by chance.
    """
    if raw["mode"] == "never":
        return dict.fromkeys(_GROUNDING)
    documents = [passage["document"] for passage in raw["passages"]]
    found = dict.fromkeys(_GROUNDING) | {"retrieval_recall": recall(documents, item.documents)}
    if task != "short_answer":
        return found
    passages = [(str(passage["id"]), passage["text"]) for passage in raw["passages"]]
    quotes = [(str(cited["passage"]), cited["quote"]) for cited in raw["answer"]["citations"]]
    held = [holds_answer(text, item.answers) for _, text in passages]
    return found | {
        "answer_in_context": float(any(held)) if item.answers else None,
        "citation_precision": citation_precision(quotes, item.answers),
        "citation_recall": citation_recall(quotes, passages, item.answers),
    }


_GROUNDING = ("retrieval_recall", "answer_in_context", "citation_precision", "citation_recall")


def _chosen(
    made: Mapping[tuple[str, str], Record], item_id: str, never: Raw, decision: GateDecision
) -> Record:
    """Makes the record of mode ``auto``: by promise its text is that of one of the branches.

    Its times add up what the pipeline does in this mode: the closed-book beginning that is thrown
    away before a retrieved answer, and the lookup that an unsure gate makes and then drops.
    """
    chosen = made[item_id, "always" if decision.retrieve else "never"]
    spent, usage = dict(chosen["latency_ms"]), dict(chosen["usage"])
    if decision.retrieve and decision.signals:
        spent["gate_ms"] = never["draft_ms"]
        spent["total_ms"] += never["draft_ms"]
        usage["draft_tokens"] = never["draft_tokens"]
    if not decision.retrieve and decision.zone == "unsure":
        lookup_ms = made[item_id, "always"]["latency_ms"]["lookup_ms"]
        spent["lookup_ms"] += lookup_ms
        spent["total_ms"] += lookup_ms
        usage["lookups"] = 1
    return {
        **chosen,
        "mode": "auto",
        "gate": decision.to_dict(),
        "latency_ms": spent,
        "usage": usage,
    }
