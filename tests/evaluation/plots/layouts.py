"""Small figures of each kind of report, in the layouts that the measuring commands write."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

IDENTITIES = frozenset(
    ("drafter", "category", "task", "policy", "branching", "num_speculative_tokens", "measure")
)
"""Keys that say what a row is about, and are never unknown."""


def _figure(value: float, num_items: int = 40) -> dict[str, Any]:
    low, high = max(0.0, value - 0.1), min(1.0, value + 0.1)
    return {"value": value, "low": low, "high": high, "num_items": num_items}


def _times(middle: float) -> dict[str, float]:
    return {"mean": 1.2 * middle, "p50": middle, "p90": 2 * middle, "p99": 3 * middle}


def qa() -> dict[str, Any]:
    """Three modes and a gate."""
    values = {"never": 0.2, "always": 0.5, "auto": 0.45}
    rates = {"never": 0.0, "always": 1.0, "auto": 0.4}
    unknown = {"value": None, "low": None, "high": None, "num_items": 0}
    modes = {
        mode: {
            **{name: _figure(value) for name in ("exact_match", "f1", "contains", "abstained")},
            "retrieval_recall": unknown if mode == "never" else _figure(0.9, 25),
            "citation_precision": unknown if mode == "never" else _figure(0.6, 25),
        }
        for mode, value in values.items()
    }
    stages = {"gate_ms": 5.0, "lookup_ms": 10.0, "prefill_ms": 100.0, "decode_ms": 200.0}
    baselines = ("gate", "oracle", "random", "perplexity", "margin", "question_length")
    return {
        "modes": modes,
        "categories": {"people": modes},
        "usage": {mode: {"lookups": 1.0, "completion_tokens": 12.0} for mode in values},
        "latency_ms": {
            mode: {**{name: _times(ms) for name, ms in stages.items()}, "total_ms": _times(315.0)}
            for mode in values
        },
        "gate": {
            "measure": "contains",
            "curves": {name: [[0.0, 0.2], [0.5, 0.4], [1.0, 0.5]] for name in baselines},
            "points": {
                mode: {"retrieval_rate": rates[mode], "accuracy": _figure(value)}
                for mode, value in values.items()
            },
            "area": dict.fromkeys(baselines, 0.4),
            "gain_captured": {"gate": {"value": 0.4, "low": 0.1, "high": 0.7}},
            "auroc": {"gate": {"wrong": 0.6, "helps": 0.7}},
            "helps": 0.4,
            "hurts": 0.1,
            "reliability": [
                {"predicted": 0.8, "observed": 0.7, "num_items": 30},
                {"predicted": 0.3, "observed": 0.2, "num_items": 10},
            ],
            "ece": 0.1,
        },
    }


def speed(drafters: tuple[str, ...] = ("none", "suffix", "llama.cpp")) -> dict[str, Any]:
    """Two categories, plain decoding, a drafter and a peer that tells only its speed."""
    return {
        "results": [
            _speed_row(category, drafter, 1.0 + 0.5 * number)
            for category in ("coding", "qa", "all")
            for number, drafter in enumerate(drafters)
        ],
        "tasks": [
            _task("code", drafters[1], 0.8, 200, (0.85, 0.92)),
            _task("maths", drafters[1], 0.5, 12, (0.60, 0.70)),
        ],
        "costs": {"num_nodes": [1, 2, 4, 8], "relative": [1.0, 1.1, 1.2, 1.6]},
        "failed": [],
        "left_out": [],
    }


def _speed_row(category: str, drafter: str, factor: float) -> dict[str, Any]:
    drafts = drafter not in ("none", "llama.cpp")
    depths = [0.75, 0.5, 0.25] if drafts else []
    return {
        "category": category,
        "drafter": drafter,
        "num_prompts": 20 if category == "all" else 10,
        "num_tokens": 640,
        "tokens_per_second": 40 * factor,
        "tokens_per_second_low": 38 * factor,
        "tokens_per_second_high": 43 * factor,
        "speedup": factor,
        "speedup_low": None if drafter == "none" else 0.9 * factor,
        "speedup_high": None if drafter == "none" else 1.2 * factor,
        "speedup_with_prefill": factor,
        "speedup_median_of_prompts": factor,
        "prefill_ms": 80.0,
        "ms_per_token": _times(25 / factor),
        "mean_acceptance_length": 2.5 if depths else 1.0,
        "acceptance_by_depth": depths,
        "acceptance": depths[0] if depths else None,
        "equal_share": 1.0,
        "num_equal_to_plain": 10,
        "first_differences": [],
        "peak_memory_mb": 900.0,
        "details": {},
        "prompts": [],
    }


def _task(
    task: str, drafter: str, acceptance: float, num_drafts: int, usual: tuple[float, float]
) -> dict[str, Any]:
    return {
        "task": task,
        "drafter": drafter,
        "acceptance": acceptance,
        "num_drafts": num_drafts,
        "usual_low": usual[0],
        "usual_high": usual[1],
    }


def tuning(drafters: tuple[str, ...] = ("suffix", "selector")) -> dict[str, Any]:
    """Two drafters, chains of three lengths and trees of one size."""
    sweep = [
        _tried(drafter, tokens, 1, "fixed", 1.0 + 0.1 * tokens - 0.2 * number)
        for number, drafter in enumerate(drafters)
        for tokens in (1, 4, 8)
    ] + [_tried(drafter, 8, 4, "fixed", 1.3) for drafter in drafters]
    rows = [
        {
            "drafter": drafter,
            "category": "all",
            "tokens_per_second": 60.0 - 10 * number,
            "speedup": 1.5 - 0.25 * number,
            "speedup_low": 1.2,
            "speedup_high": 1.7,
            "mean_acceptance_length": 2.0,
            "acceptance": 0.7,
            "acceptance_by_depth": [0.7, 0.5],
            "draft_level": 0.01,
            "num_prompts": 12,
        }
        for number, drafter in enumerate(drafters)
    ]
    costs = {"num_nodes": [1, 2, 4, 8], "relative": [1.0, 1.1, 1.2, 1.6]}
    return {
        "costs": {**costs, "ms": [30.0, 33.0, 36.0, 48.0]},
        "plain": {"tokens_per_second": 40.0, "num_prompts": 12},
        "drafters": rows,
        "sweep": sweep,
        "finals": sweep[:2],
        "advice": {
            "drafter": drafters[0],
            "num_speculative_tokens": 8,
            "branching": 1,
            "policy": "fixed",
            "speculate": True,
            "reasons": ["It is the fastest."],
        },
    }


def _tried(
    drafter: str, tokens: int, branching: int, policy: str, speedup: float
) -> dict[str, Any]:
    return {
        "drafter": drafter,
        "num_speculative_tokens": tokens,
        "branching": branching,
        "policy": policy,
        "tokens_per_second": 40 * speedup,
        "speedup": speedup,
        "speedup_low": speedup - 0.1,
        "speedup_high": speedup + 0.1,
        "mean_acceptance_length": 2.0,
        "num_prompts": 12,
    }


def retrieval(names: tuple[str, ...] = ("dense", "bm25", "hybrid")) -> dict[str, Any]:
    """Three ways of searching over questions with one relevant document each."""
    values = {"ndcg@10": 0.6, "mrr@10": 0.55, "recall@1": 0.5, "recall@5": 0.7, "recall@100": 0.85}
    return {
        "retrievers": {
            name: {measure: _figure(value + 0.02 * number) for measure, value in values.items()}
            for number, name in enumerate(names)
        },
        "differences": [
            {
                "first": first,
                "second": second,
                "measure": measure,
                "difference": 0.1,
                "low": 0.05,
                "high": 0.15,
                "num_items": 40,
                "significant": True,
            }
            for first, second in combinations(names, 2)
            for measure in values
        ],
        "latency_ms": {name: _times(10.0 + number) for number, name in enumerate(names)},
        "collection": {"documents": 1400, "passages": 2000, "questions": 40, "judgements": 40},
    }


LAYOUTS: dict[str, Callable[[], dict[str, Any]]] = {
    "qa": qa,
    "speed": speed,
    "tuning": tuning,
    "retrieval": retrieval,
}


def without(figures: Any, unknown: Callable[[], bool]) -> Any:
    """Returns the figures with those values None that ``unknown`` says so for, one by one."""
    if isinstance(figures, dict):
        return {
            key: value if key in IDENTITIES else without(value, unknown)
            for key, value in figures.items()
        }
    if isinstance(figures, list):
        return [without(value, unknown) for value in figures]
    return None if unknown() else figures
