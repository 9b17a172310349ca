"""Prefill: prompts become committed rows of a cache, alike beginnings evaluated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        features: For each request the hidden states of its whole prompt, layer to ``[prompt
            length, hidden]``; requests with the same prompt share them.
    """

    cache: KVCache
    logits: tuple[torch.Tensor, ...]
    num_cached: tuple[int, ...]
    features: tuple[Mapping[int, torch.Tensor], ...]


def prefill(
    target: TargetModel,
    requests: Sequence[DecodingRequest],
    capacity: int,
    prefix_cache: PrefixCache | None = None,
    slot_multiple: int = 1,
    feature_layers: Sequence[int] = (),
) -> Prefilled:
    """Evaluates the prompts of some requests in a cache of their own.

    Requests for several answers to one prompt share its evaluation.

    Args:
        target: Evaluates them.
        requests: At least one.
        capacity: Tokens to reserve for each row.
        prefix_cache: Offers and is not given any states; None reuses nothing.
        slot_multiple: Of the cache, see ``KVCache``.
        feature_layers: Layers to hand out the hidden states of, see ``TargetModel``.
    """
    num_logits = 1 + max(request.num_traced for request in requests)
    prompts = list(dict.fromkeys(request.prompt_ids for request in requests))
    cache = target.new_cache(len(prompts), capacity)
    cache.slot_multiple = slot_multiple
    known: list[Mapping[int, torch.Tensor]] = [{}] * len(prompts)
    if prefix_cache is not None:
        for row, prompt in enumerate(prompts):
            most = len(prompt) - num_logits
            states = prefix_cache.longest(prompt, most, feature_layers)
            if states is not None:
                cache.import_row(row, states.keys_values)
                known[row] = states.features
    reused = cache.lengths
    rest = [prompt[skipped:] for prompt, skipped in zip(prompts, reused, strict=True)]
    output = target.prefill(rest, cache, num_logits, feature_layers)
    features = [
        _whole(known[row], output.features, row, len(computed)) for row, computed in enumerate(rest)
    ]
    rows = [prompts.index(request.prompt_ids) for request in requests]
    if rows != list(range(len(prompts))):
        cache.select_rows(rows)
    return Prefilled(
        cache,
        tuple(output.logits[row] for row in rows),
        tuple(reused[row] for row in rows),
        tuple(features[row] for row in rows),
    )


def _whole(
    known: Mapping[int, torch.Tensor], computed: Mapping[int, torch.Tensor], row: int, length: int
) -> dict[int, torch.Tensor]:
    """Puts the features of a row's reused tokens and of those behind them together."""
    whole = {}
    for layer, states in computed.items():
        new = states[row, :length]
        whole[layer] = torch.cat([known[layer].to(new), new]) if layer in known else new
    return whole
