"""The law of the next token by its definition: biases, penalties and truncation in plain numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from specrag.decoding.sampling import SamplingParams

Vector = npt.NDArray[np.float64]


def token_law(
    logits: Sequence[float],
    params: SamplingParams,
    prompt: Sequence[int],
    answer: Sequence[int],
    ends: Sequence[int] = (),
) -> Vector:
    """Returns the law of the token that follows.

    Args:
        logits: Of the model, one a token.
        params: How to choose; the temperature must not be 0.
        prompt: Tokens of the prompt.
        answer: Tokens of the answer so far.
        ends: Tokens that end an answer.
    """
    scores = _lowered(np.array(logits, dtype=np.float64), params, prompt, answer)
    if len(answer) < params.min_tokens and not params.ignore_eos:
        scores[list(ends)] = -np.inf
    scores = scores / params.temperature
    scores = _only(scores, _most_probable(scores, params.top_k))
    scores = _only(scores, _nucleus(scores, params.top_p))
    scores = _only(scores, softmax(scores) >= params.min_p * softmax(scores).max())
    return softmax(scores)


def softmax(scores: Vector) -> Vector:
    """Returns the probabilities of some scores."""
    weights: Vector = np.exp(scores - scores.max())
    weights /= weights.sum()
    return weights


def _lowered(
    scores: Vector, params: SamplingParams, prompt: Sequence[int], answer: Sequence[int]
) -> Vector:
    for token, bias in dict(params.logit_bias).items():
        scores[token] += bias
    for token in {*prompt, *answer}:
        factor = params.repetition_penalty
        scores[token] = scores[token] * factor if scores[token] < 0 else scores[token] / factor
    for token in set(answer):
        scores[token] -= params.presence_penalty
    for token in answer:
        scores[token] -= params.frequency_penalty
    return scores


def _most_probable(scores: Vector, number: int) -> npt.NDArray[np.bool_]:
    """As many as that; 0 stands for all."""
    least = np.sort(scores)[-min(number or len(scores), len(scores))]
    kept: npt.NDArray[np.bool_] = scores >= least
    return kept


def _nucleus(scores: Vector, mass: float) -> npt.NDArray[np.bool_]:
    """Token by token from the likeliest on, until the mass is reached."""
    kept = np.zeros(len(scores), dtype=np.bool_)
    total = 0.0
    for token in np.argsort(-scores):
        if total >= mass:
            break
        kept[token] = True
        total += softmax(scores)[token]
    return kept


def _only(scores: Vector, kept: npt.NDArray[np.bool_]) -> Vector:
    return np.where(kept, scores, -np.inf)
