"""Speculative sampling by its definition, in plain numbers and by enumeration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import product
from math import fsum

Law = Sequence[float]
Conditional = Callable[[tuple[int, ...]], Law]
"""The law of the next token after some tokens."""


def acceptance(target_probs: Law, draft_probs: Law) -> float:
    """The probability that a drawn token is accepted: what the two laws have in common."""
    return fsum(min(t, d) for t, d in zip(target_probs, draft_probs, strict=True))


def residual(target_probs: Law, draft_probs: Law) -> list[float]:
    """The law of the token that replaces a rejected one; the target's own if nothing is left."""
    left = [max(0.0, t - d) for t, d in zip(target_probs, draft_probs, strict=True)]
    total = fsum(left)
    return [part / total for part in left] if total > 0 else list(target_probs)


def one_token_law(target_probs: Law, draft_probs: Law) -> list[float]:
    """The law of the one token that comes out of a chain of one, without the bonus."""
    replaced = residual(target_probs, draft_probs)
    parts: list[list[float]] = [[] for _ in target_probs]
    for drafted, chance in enumerate(draft_probs):
        kept = min(1.0, target_probs[drafted] / chance) if chance else 0.0
        parts[drafted].append(chance * kept)
        for token, share in enumerate(replaced):
            parts[token].append(chance * (1.0 - kept) * share)
    return [fsum(part) for part in parts]


def pass_law(
    target: Conditional, draft: Conditional, length: int, vocab: int
) -> dict[tuple[int, ...], float]:
    """The law of what one pass emits: accepted tokens and one more, one to ``length + 1``."""
    law: dict[tuple[int, ...], float] = defaultdict(float)
    for chain in product(range(vocab), repeat=length):
        chance = 1.0
        for depth, token in enumerate(chain):
            chance *= draft(chain[:depth])[token]
        for depth, token in enumerate(chain):
            if chance == 0.0:
                break
            before = chain[:depth]
            target_probs, draft_probs = target(before), draft(before)
            kept = min(1.0, target_probs[token] / draft_probs[token])
            for other, share in enumerate(residual(target_probs, draft_probs)):
                law[(*before, other)] += chance * (1.0 - kept) * share
            chance *= kept
        for bonus, share in enumerate(target(chain)):
            law[(*chain, bonus)] += chance * share
    return law


def first_tokens_law(
    emitted: dict[tuple[int, ...], float], target: Conditional, count: int, vocab: int
) -> dict[tuple[int, ...], float]:
    """The law of the first ``count`` tokens when plain decoding goes on behind the pass."""
    law: dict[tuple[int, ...], float] = defaultdict(float)
    for tokens, chance in emitted.items():
        for rest in product(range(vocab), repeat=max(0, count - len(tokens))):
            share = chance
            for depth, token in enumerate(rest):
                share *= target((*tokens, *rest[:depth]))[token]
            law[(*tokens, *rest)[:count]] += share
    return law
