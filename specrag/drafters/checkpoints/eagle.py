"""EAGLE-1 and EAGLE-2 heads: from tensors and settings to a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import torch

from specrag.drafters.checkpoints.checkpoint import HeadCheckpoint
from specrag.drafters.checkpoints.draft_vocabulary import draft_token_ids
from specrag.drafters.checkpoints.family import Family
from specrag.drafters.checkpoints.layer_shape import layer_shape
from specrag.drafters.checkpoints.settings import Settings
from specrag.drafters.checkpoints.target_shape import TargetShape
from specrag.drafters.heads.config import EagleConfig
from specrag.errors import ModelError

# The target's own: EAGLE-1 embeds with its embeddings and names tokens by its LM head.
_TARGETS = re.compile(r"^(embed_tokens|lm_head)\.|^[dt]2[td]$")


def read_eagle(
    tensors: Mapping[str, torch.Tensor], settings: Settings, target: TargetShape, name: str
) -> HeadCheckpoint:
    """Reads a head of SafeAILab, of HASS or of the first version of ``speculators``.

    Args:
        tensors: Under the names of ``plain_names``.
        settings: Of the head.
        target: What the head is read against.
        name: Of the head.

    Raises:
        ModelError: The head lacks a tensor or has a norm that EAGLE-1 has not.
    """
    notes: list[str] = []
    if "input_layernorm.weight" in tensors:
        raise ModelError(
            f"the draft head {name!r} has a norm in front of its first layer, which EAGLE-1 and "
            "EAGLE-2 leave out, and specrag does not run it",
            hint="use a head without it, or train one: specrag train eagle",
        )
    found = layer_shape(tensors, settings, target, name, notes)
    bias = "fc.bias" in tensors
    said = settings.flag("bias")
    if (said is None or said) != bias:
        declared = "says nothing" if said is None else f"says {said}"
        notes.append(f"fc has {'a' if bias else 'no'} bias by the tensors; config.json {declared}")
    embeddings = tensors.get("embed_tokens.weight")
    config = EagleConfig(
        layer=found.layer,
        vocab_size=_vocab_size(embeddings, settings, target),
        num_layers=found.num_layers,
        fc_bias=bias,
        input_norms="embedding_layernorm.weight" in tensors,
        final_norm="norm.weight" in tensors,
    )
    ids = draft_token_ids(tensors, None, config.vocab_size, name, notes)
    if "lm_head.weight" in tensors:
        notes.append("its LM head is left out: that of the target is read")
    return HeadCheckpoint(
        name,
        Family.EAGLE,
        config,
        {key: value for key, value in tensors.items() if not _TARGETS.match(key)},
        draft_token_ids=ids,
        variants=(config, *(replace(config, layer=layer) for layer in found.others)),
        notes=tuple(notes),
    )


def _vocab_size(embeddings: torch.Tensor | None, settings: Settings, target: TargetShape) -> int:
    if embeddings is not None:
        return len(embeddings)
    return settings.integer("vocab_size") or target.vocab_size
