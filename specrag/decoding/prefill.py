"""Prefill: prompts become committed rows of a cache, alike beginnings evaluated once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from specrag.decoding.row import DecodingRequest
from specrag.models.kv_cache import KVCache
from specrag.models.prefix_cache import PrefixCache
from specrag.models.target import TargetModel


@dataclass(frozen=True, slots=True)
class Prefilled:
    """Rows that are ready for their first token.

    Attributes:
        cache: One row a request, its prompt committed.
        logits: For each request ``[positions, vocab]`` of its last prompt tokens.
        num_cached: Prompt tokens of each that were taken over from an earlier request.
    """

    cache: KVCache
    logits: tuple[torch.Tensor, ...]
    num_cached: tuple[int, ...]


def prefill(
    target: TargetModel,
    requests: Sequence[DecodingRequest],
    capacity: int,
    prefix_cache: PrefixCache | None = None,
    slot_multiple: int = 1,
) -> Prefilled:
    """Evaluates the prompts of some requests in a cache of their own.

    Requests for several answers to one prompt share its evaluation.

    Args:
        target: Evaluates them.
        requests: At least one.
        capacity: Tokens to reserve for each row.
        prefix_cache: Offers and is not given any states; None reuses nothing.
        slot_multiple: Of the cache, see ``KVCache``.
    """
    num_logits = 1 + max(request.num_traced for request in requests)
    prompts = list(dict.fromkeys(request.prompt_ids for request in requests))
    cache = target.new_cache(len(prompts), capacity)
    cache.slot_multiple = slot_multiple
    if prefix_cache is not None:
        for row, prompt in enumerate(prompts):
            states = prefix_cache.longest(prompt, len(prompt) - num_logits)
            if states is not None:
                cache.import_row(row, states)
    reused = cache.lengths
    rest = [prompt[skipped:] for prompt, skipped in zip(prompts, reused, strict=True)]
    output = target.prefill(rest, cache, num_logits)
    rows = [prompts.index(request.prompt_ids) for request in requests]
    if rows != list(range(len(prompts))):
        cache.select_rows(rows)
    return Prefilled(
        cache,
        tuple(output.logits[row] for row in rows),
        tuple(reused[row] for row in rows),
    )
