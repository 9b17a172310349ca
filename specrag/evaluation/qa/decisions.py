"""What the gate decides on the questions of a run: the pipeline's gate, or gates fitted on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from specrag.evaluation.datasets.item import EvalItem
from specrag.evaluation.qa.answers import Raw
from specrag.gate.calibration import LabelledSignals, fit
from specrag.gate.policy import CalibratedGate, GateDecision, RetrievalGate
from specrag.gate.signals import GateSignals, LookupSignals
from specrag.rag.pipeline import Pipeline

NUM_FOLDS = 5


def pipeline_decisions(
    pipeline: Pipeline, items: Sequence[EvalItem], raws: Sequence[Raw]
) -> dict[str, GateDecision]:
    """Returns what mode ``auto`` of a pipeline decides on each question.

    Args:
        pipeline: Its rules and its gate decide.
        items: The questions.
        raws: Their answers in both branches.
    """
    pairs = paired(raws)
    return {
        item.id: _decide(pipeline.gate_for("auto", item.question), *pairs[item.id])
        for item in items
    }


def cross_fitted_decisions(
    pipeline: Pipeline,
    items: Sequence[EvalItem],
    raws: Sequence[Raw],
    needed: Mapping[str, bool],
    seed: int = 0,
) -> dict[str, GateDecision]:
    """Returns what gates decide that were fitted on the other questions of a run.

    The questions are dealt into folds; each is decided by a gate fitted on the other folds, so no
    gate has seen the answer that it is judged by.

    Args:
        pipeline: Its rules come first, as in mode ``auto``.
        items: The questions.
        raws: Their answers in both branches.
        needed: By question, whether the closed-book answer is wrong.
        seed: Of the folds.

    Raises:
        GateError: There are too few questions of a kind to fit a gate on.
    """
    pairs = paired(raws)
    folds = np.random.default_rng(seed).permutation(len(items)) % NUM_FOLDS
    found: dict[str, GateDecision] = {}
    for fold in sorted(set(folds.tolist())):
        rows = [
            _labelled(*pairs[item.id], needed[item.id])
            for item, other in zip(items, folds, strict=True)
            if other != fold
        ]
        gate = CalibratedGate(fit(rows, {"fold": str(fold)}, seed=seed))
        for item, other in zip(items, folds, strict=True):
            if other == fold:
                ruled = pipeline.gate_for("auto", item.question)
                chosen = gate if ruled is pipeline.gate else ruled
                found[item.id] = _decide(chosen, *pairs[item.id])
    return {item.id: found[item.id] for item in items}


def paired(raws: Sequence[Raw]) -> dict[str, tuple[Raw, Raw]]:
    """Returns the closed-book and the open-book answer of each question.

    Args:
        raws: Answers of both branches.
    """
    by_mode = {(raw["id"], raw["mode"]): raw for raw in raws}
    return {
        name: (raw, by_mode[name, "always"])
        for (name, mode), raw in by_mode.items()
        if mode == "never"
    }


def signals_of(raw: Raw) -> GateSignals:
    """Returns the signals of a closed-book answer.

    Args:
        raw: The answer.
    """
    return GateSignals(**raw["signals"])


def _labelled(never: Raw, always: Raw, needed: bool) -> LabelledSignals:
    return LabelledSignals(signals_of(never), needed, float(always["lookup"]["top_score"]))


def _decide(gate: RetrievalGate, never: Raw, always: Raw) -> GateDecision:
    decision = gate.decide(signals_of(never) if gate.reads_signals else None)
    if not decision.retrieve:
        return decision
    return gate.confirm(decision, LookupSignals(**always["lookup"]))
