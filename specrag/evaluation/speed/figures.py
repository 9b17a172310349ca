"""The figures of a run: one row for each arm and category, and one over all categories."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from specrag.decoding.budget import PassCosts
from specrag.decoding.stats import DecodingStats
from specrag.evaluation.metrics.intervals import Array
from specrag.evaluation.speed.measure import SpeedRun
from specrag.evaluation.speed.prompt_speed import PromptSpeed, prompt_speed
from specrag.evaluation.speed.ratios import interval
from specrag.evaluation.speed.tasks import USUAL

ALL = "all"
"""The category of the rows over all prompts."""

_DIGITS = 4


def speed_figures(
    run: SpeedRun,
    *,
    end_token_ids: Collection[int] = (),
    costs: PassCosts | None = None,
    left_out: Sequence[str] = (),
    seed: int = 0,
) -> dict[str, Any]:
    """Returns all figures of a run as plain data.

    Args:
        run: What was measured.
        end_token_ids: Tokens that end an answer.
        costs: What a pass of the target costs, if it was measured.
        left_out: Ids of questions that were too long.
        seed: Of the intervals.
    """
    places = range(len(run.prompts))
    speeds = {
        arm: {
            place: prompt_speed(run.prompts[place], arm, run.plain, end_token_ids)
            for place in places
            if arm in run.prompts[place].samples
        }
        for arm in run.arms
    }
    labels = [decoded.prompt.category for decoded in run.prompts]
    categories = [label for label in dict.fromkeys(labels) if label != ALL]
    rows = []
    for category in (*categories, ALL):
        wanted = [place for place in places if category in (ALL, labels[place])]
        for arm in run.arms:
            done = [place for place in wanted if place in speeds[arm]]
            if not done:
                continue
            # An arm that failed on the way is held against plain decoding of what it did.
            sides = [[speeds[name][place] for place in done] for name in (arm, run.plain)]
            row = _row(sides[0], sides[1], seed)
            rows.append({"category": category, "drafter": arm, **row, **_told(run, arm)})
    return {
        "results": rows,
        "tasks": _tasks({arm: list(found.values()) for arm, found in speeds.items()}),
        "costs": None if costs is None else _costs(costs),
        "failed": [asdict(failure) for failure in run.failures],
        "left_out": list(left_out),
    }


def _row(speeds: Sequence[PromptSpeed], plain: Sequence[PromptSpeed], seed: int) -> dict[str, Any]:
    equal = sum(speed.difference is None for speed in speeds)
    stats = _stats(speeds)
    prefills = [speed.prefill_ms for speed in speeds if speed.prefill_ms is not None]
    return {
        "num_prompts": len(speeds),
        "num_tokens": sum(speed.num_tokens for speed in speeds),
        **_speed(speeds, plain, seed),
        "prefill_ms": _rounded(statistics.median(prefills)) if prefills else None,
        "ms_per_token": _ms_per_token(speeds),
        "mean_acceptance_length": _rounded(_acceptance_length(speeds, stats)),
        **_acceptance(stats),
        "equal_share": _rounded(equal / len(speeds)),
        "num_equal_to_plain": equal,
        "first_differences": [
            asdict(speed.difference) for speed in speeds if speed.difference is not None
        ],
        "speculation": None if stats is None else stats.to_dict(),
        "prompts": [_prompt(speed) for speed in speeds],
    }


def _told(run: SpeedRun, arm: str) -> dict[str, Any]:
    return {
        "peak_memory_mb": _rounded(run.memory_mb.get(arm), 1),
        "details": run.details.get(arm, {}),
    }


def _prompt(speed: PromptSpeed) -> dict[str, Any]:
    return {
        "id": speed.prompt.id,
        "num_tokens": speed.num_tokens,
        "prefill_ms": _rounded(speed.prefill_ms),
        "decode_ms": _rounded(speed.decode_ms),
        "tokens_per_second": _rounded(speed.tokens_per_second),
        "equal": speed.difference is None,
    }


def _speed(
    speeds: Sequence[PromptSpeed], plain: Sequence[PromptSpeed], seed: int
) -> dict[str, Any]:
    """Speeds are ratios of sums over prompts, so that long answers count for what they take."""
    pairs = [
        (mine, other)
        for mine, other in zip(speeds, plain, strict=True)
        if mine.tokens_per_second and other.tokens_per_second
    ]
    columns: list[list[float]] = [
        [speed.num_later for speed, _ in pairs],
        [speed.decode_ms for speed, _ in pairs],
        [other.num_later for _, other in pairs],
        [other.decode_ms for _, other in pairs],
    ]
    rate, rate_low, rate_high = _figure(columns[:2], _per_second, seed)
    factor, low, high = _figure(columns, _factor, seed)
    ratios = [
        (mine.num_later / mine.decode_ms) / (other.num_later / other.decode_ms)
        for mine, other in pairs
    ]
    return {
        "tokens_per_second": rate,
        "tokens_per_second_low": rate_low,
        "tokens_per_second_high": rate_high,
        "speedup": factor,
        "speedup_low": low,
        "speedup_high": high,
        "speedup_with_prefill": _with_prefill(speeds, plain),
        "speedup_median_of_prompts": _rounded(statistics.median(ratios)) if ratios else None,
    }


def _per_second(tokens: Array, times: Array) -> Array:
    return 1e3 * tokens / times


def _factor(tokens: Array, times: Array, plain_tokens: Array, plain_times: Array) -> Array:
    return (tokens / times) / (plain_tokens / plain_times)


def _figure(
    columns: Sequence[Sequence[float]], figure: Any, seed: int
) -> tuple[float | None, float | None, float | None]:
    """Returns a figure with both ends of its interval."""
    if not columns[0]:
        return None, None, None
    value = _rounded(float(figure(*(np.asarray(column, np.float64).sum() for column in columns))))
    low, high = interval(columns, figure, seed) or (None, None)
    return value, _rounded(low), _rounded(high)


def _with_prefill(speeds: Sequence[PromptSpeed], plain: Sequence[PromptSpeed]) -> float | None:
    rates = []
    for side in (speeds, plain):
        times = [speed.total_ms for speed in side if speed.total_ms is not None]
        if len(times) < len(side) or not sum(times):
            return None
        rates.append(sum(speed.num_tokens for speed in side) / sum(times))
    return _rounded(rates[0] / rates[1])


def _ms_per_token(speeds: Sequence[PromptSpeed]) -> dict[str, float | None]:
    """Times of a token are its pass's share; each token of each round counts once."""
    later = sum(max(0, speed.num_later) for speed in speeds)
    decode_ms = sum(speed.decode_ms for speed in speeds)
    told: dict[str, float | None] = {"mean": _rounded(decode_ms / later) if later else None}
    steps = [step for speed in speeds for step in speed.steps if step[1]]
    if not all(speed.steps for speed in speeds if speed.num_later > 0):
        steps = []  # an arm that tells only part of its passes would be judged by them
    times, tokens = (np.asarray([step[side] for step in steps]) for side in (0, 1))
    each = np.repeat(times / tokens, tokens.astype(int)) if steps else None
    for percent in (50, 90, 99):
        value = None if each is None else float(np.percentile(each, percent))
        told[f"p{percent}"] = _rounded(value)
    return told


def _stats(speeds: Sequence[PromptSpeed]) -> DecodingStats | None:
    found = [speed.stats for speed in speeds if speed.stats is not None]
    if len(found) < len(speeds):
        return None
    total = DecodingStats()
    for stats in found:
        total.add(stats)
    return total


def _acceptance_length(speeds: Sequence[PromptSpeed], stats: DecodingStats | None) -> float | None:
    """Tokens per pass over all prompts; other engines tell it by the prompt."""
    if stats is not None:
        return stats.mean_acceptance_length
    told = [speed for speed in speeds if speed.mean_acceptance_length and speed.num_later > 0]
    passes = sum(speed.num_later / (speed.mean_acceptance_length or 1) for speed in told)
    return sum(speed.num_later for speed in told) / passes if passes else None


def _acceptance(stats: DecodingStats | None) -> dict[str, Any]:
    counts = [] if stats is None or not stats.num_drafts else stats.num_accepted_tokens_per_pos
    shares = [_rounded(count / stats.num_drafts) for count in counts] if stats else []
    return {"acceptance_by_depth": shares, "acceptance": shares[0] if shares else None}


def _tasks(speeds: dict[str, list[PromptSpeed]]) -> list[dict[str, Any]]:
    """Acceptance of the first drafted token by task, beside what is usual."""
    rows = []
    for task, (low, high) in USUAL.items():
        for arm, of_arm in speeds.items():
            stats = _stats([speed for speed in of_arm if speed.prompt.task == task])
            if stats is None or not stats.num_drafts:
                continue
            rows.append(
                {
                    "task": task,
                    "drafter": arm,
                    "acceptance": _acceptance(stats)["acceptance"],
                    "num_drafts": stats.num_drafts,
                    "usual_low": low,
                    "usual_high": high,
                }
            )
    return rows


def _costs(costs: PassCosts) -> dict[str, list[float]]:
    return {"num_nodes": list(costs.num_nodes), "relative": list(costs.relative)}


def _rounded(value: float | None, digits: int = _DIGITS) -> float | None:
    return None if value is None else round(value, digits)
