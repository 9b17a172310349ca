"""Counter-based noise: each random number is a function of seed, position, stream and token.

Nothing is consumed, so decoding with and without speculation, and a drafter beside its target,
meet the same numbers at the same place.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from specrag.errors import ConfigError, ModelError

_Int64 = TypeVar("_Int64", npt.NDArray[np.int64], torch.Tensor)

_MASK64 = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_MIX_STEPS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31

_REACH = 41.0
"""How far below the best score a token can still win.

The uniform numbers lie in [2**-53, 1 - 2**-53], so Gumbel noise lies in
[-log(53 log 2), 53 log 2] = [-3.61, 36.74] and no two noises differ by more than 40.35. A token
further than that below the best one loses to it whatever the noise, so leaving it out changes no
draw.
"""


class Stream(IntEnum):
    """What a random number is used for; numbers of different streams are independent."""

    TARGET = 0
    """The target's own draw of a token."""
    DRAFT = 1
    """A drafter's draw that must not depend on the target's, as rejection sampling asks for."""
    ACCEPT = 2
    """The coin that accepts or rejects a drafted token."""
    RESIDUAL = 3
    """The draw that replaces a rejected token."""


def draw(scores: torch.Tensor, seed: int, position: int, stream: Stream) -> int:
    """Draws a token from the softmax of the scores.

    Gumbel-max form: the token with the largest sum of score and noise. Two distributions that are
    drawn with the same noise give the same token with probability at least
    ``(1 - TV) / (1 + TV)``, with TV their total variation distance and however the tokens are
    numbered (Daliri, Musco and Suresh 2024, "Coupling without Communication and
    Drafter-Invariant Speculative Decoding"). Neither side needs to know the other.

    Args:
        scores: ``[vocab]`` unnormalised log-probabilities in float32 or float64; minus infinity
            excludes a token.
        seed: Any integer.
        position: Absolute position of the token, prompt included.
        stream: What the draw is for.

    Raises:
        ConfigError: Every token is excluded.
        ModelError: A score is not a number, or infinite.
    """
    lowest = finite_best(scores) - _REACH
    if scores.device.type == "cpu":
        # numpy takes a third of torch's time on a CPU, for few tokens and for many.
        values = scores.detach().numpy()
        tokens = np.flatnonzero(values >= lowest)
        noise = _array_gumbel(tokens, _key(seed, position, stream))
        return int(tokens[(noise + values[tokens]).argmax()])
    candidates = (scores >= lowest).nonzero().squeeze(-1)
    noisy = gumbel(candidates, seed, position, stream) + scores[candidates]
    return int(candidates[noisy.argmax()])


def finite_best(scores: torch.Tensor) -> float:
    """Returns the largest score.

    Args:
        scores: ``[vocab]``.

    Raises:
        ConfigError: Every token is excluded.
        ModelError: A score is not a number, or infinite.
    """
    best = float(scores.max())
    if best == -math.inf:
        raise ConfigError(
            f"none of the {len(scores)} tokens may be chosen: each has a score of minus infinity",
            hint="loosen logit_bias, min_tokens or the custom logits processors",
        )
    if not math.isfinite(best):
        raise ModelError(
            f"the scores of the next token cannot be compared: the largest is {best}",
            hint="load the model in another dtype, or look at the custom logits processors",
        )
    return best


def gumbel(token_ids: torch.Tensor, seed: int, position: int, stream: Stream) -> torch.Tensor:
    """Returns standard Gumbel noise, one number for each token.

    Args:
        token_ids: ``[tokens]`` int64.
        seed: Any integer.
        position: Absolute position of the token to draw.
        stream: What the noise is for.

    Returns:
        Noise ``[tokens]`` in float64, the same for a token whichever others are asked for.
    """
    key = _key(seed, position, stream)
    if token_ids.device.type == "cpu":
        return torch.from_numpy(_array_gumbel(token_ids.numpy(), key))
    uniforms = _bits(token_ids, key).double().add_(0.5).mul_(2.0**-52)
    return uniforms.log_().neg_().log_().neg_()


def _array_gumbel(token_ids: npt.NDArray[np.int64], key: int) -> npt.NDArray[np.float64]:
    uniforms = _bits(token_ids, key).astype(np.float64)
    uniforms += 0.5
    uniforms *= 2.0**-52
    exponentials = np.negative(np.log(uniforms, out=uniforms), out=uniforms)
    return np.negative(np.log(exponentials, out=uniforms), out=uniforms)


def _bits(token_ids: _Int64, key: int) -> _Int64:
    """Hashes each token to 52 bits: ``_mix`` for arrays, whose products wrap around.

    52 bits and a half make a uniform number. With 53 the largest would round to 1, whose Gumbel
    noise is infinite.
    """
    state = token_ids * _signed(_GAMMA)
    state += _signed(key)
    for shift, factor in _MIX_STEPS:
        state ^= _shifted(state, shift)
        state *= _signed(factor)
    state ^= _shifted(state, _LAST_SHIFT)
    return _shifted(state, 12)


def uniform(seed: int, position: int, stream: Stream) -> float:
    """Returns a number in [0, 1).

    Args:
        seed: Any integer.
        position: Absolute position of the token that it decides on.
        stream: What it is for.
    """
    return (_mix((_key(seed, position, stream) - _GAMMA) & _MASK64) >> 11) * 2.0**-53


def derived_seed(seed: int, index: int) -> int:
    """Returns the seed of one of several answers to the same prompt; the first keeps its own.

    Args:
        seed: Of the request.
        index: Which answer, from 0.
    """
    return seed if index == 0 else _mix((_mix(seed & _MASK64) + index * _GAMMA) & _MASK64) >> 1


def _key(seed: int, position: int, stream: Stream) -> int:
    """Hashes the three in turn, so that neighbours in one of them are unrelated."""
    state = _mix((seed & _MASK64) ^ 0x5DEECE66D5DEECE6)
    for number in (position, int(stream)):
        state = _mix((state + (number + 1) * _GAMMA) & _MASK64)
    return state


def _mix(value: int) -> int:
    """The output function of SplitMix64 (Steele, Lea and Flood 2014)."""
    for shift, factor in _MIX_STEPS:
        value = ((value ^ (value >> shift)) * factor) & _MASK64
    return value ^ (value >> _LAST_SHIFT)


def _signed(value: int) -> int:
    """The same 64 bits as a signed number, which is all that torch computes with."""
    return value - (1 << 64) if value >> 63 else value


def _shifted(state: _Int64, bits: int) -> _Int64:
    """Shifts right and fills with zeros, where signed numbers would repeat their sign."""
    moved = state >> bits
    moved &= (1 << (64 - bits)) - 1
    return moved
