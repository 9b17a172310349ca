"""EAGLE-3 heads: from tensors and settings to a checkpoint, with every reading they allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import torch

from specrag.drafters.checkpoints.checkpoint import HeadCheckpoint
from specrag.drafters.checkpoints.draft_vocabulary import draft_token_ids
from specrag.drafters.checkpoints.family import Family
from specrag.drafters.checkpoints.feature_layers import feature_layer_readings
from specrag.drafters.checkpoints.layer_shape import LayerShape, layer_shape
from specrag.drafters.checkpoints.settings import Settings
from specrag.drafters.checkpoints.target_shape import TargetShape
from specrag.drafters.heads.config import Eagle3Config
from specrag.errors import ModelError

_TABLES = ("d2t", "t2d")
_EMBEDDING, _LM_HEAD = "embed_tokens.weight", "lm_head.weight"


def read_eagle3(
    tensors: Mapping[str, torch.Tensor], settings: Settings, target: TargetShape, name: str
) -> HeadCheckpoint:
    """Reads a head of SafeAILab, SpecForge, ModelOpt or ``speculators``.

    Args:
        tensors: Under the names of ``plain_names``, the target's embeddings left out.
        settings: Of the head.
        target: What the head is read against.
        name: Of the head.

    Raises:
        ModelError: The head lacks a tensor, or says too little about itself.
    """
    notes: list[str] = []
    shape = layer_shape(tensors, settings, target, name, notes)
    count, given = _features(tensors["fc.weight"].shape[1], settings, target, name, notes)
    readings = feature_layer_readings(settings, count, target.num_layers, name, notes)
    lm_head = tensors.get(_LM_HEAD)
    vocab_size = _vocab_size(tensors, settings, target, notes)
    rows = None if lm_head is None else len(lm_head)
    ids = draft_token_ids(tensors, rows, vocab_size, name, notes)
    draft_vocab_size = rows or (vocab_size if ids is None else len(ids))
    said = settings.integer("draft_vocab_size")
    if said is not None and said != draft_vocab_size:
        notes.append(
            f"draft_vocab_size is {draft_vocab_size} by the tensors, {said} by config.json"
        )
    before = settings.flag("norm_before_residual")
    if before is None and settings.speculators_type:
        notes.append("norm_before_residual is not stated, and taken to be false")
    config = Eagle3Config(
        layer=shape.layer,
        vocab_size=vocab_size,
        draft_vocab_size=draft_vocab_size,
        target_hidden_size=given,
        feature_layers=readings[0],
        num_layers=shape.num_layers,
        fc_bias="fc.bias" in tensors,
        norm_before_residual=bool(before),
        norm_before_fc=_has("input_norm.weight", "norm_before_fc", tensors, settings, notes),
        fc_norm=_has("fc_norm.0.weight", "fc_norm", tensors, settings, notes),
        norm_output=bool(settings.flag("norm_output")),
        own_embedding=_EMBEDDING in tensors,
        own_lm_head=lm_head is not None,
    )
    return HeadCheckpoint(
        name,
        Family.EAGLE3,
        config,
        {key: value for key, value in tensors.items() if key not in _TABLES},
        draft_token_ids=ids,
        variants=_variants(config, readings, shape),
        notes=tuple(notes),
    )


def _features(
    width: int, settings: Settings, target: TargetShape, name: str, notes: list[str]
) -> tuple[int, int]:
    """How many layers of the target the head takes in, and how wide each is."""
    said = settings.integer("target_hidden_size")
    for given in (target.hidden_size, said, settings.integer("hidden_size")):
        if given is not None and width % given == 0:
            if said is not None and said != given:
                notes.append(f"target_hidden_size is {given} by fc, {said} by config.json")
            return width // given, given
    raise ModelError(
        f"fc of the draft head {name!r} takes in {width} numbers, which are no whole layers of "
        f"the target {target.name!r}: its states are {target.hidden_size} wide",
        hint="use the head of this target, or train one: specrag train eagle",
    )


def _vocab_size(
    tensors: Mapping[str, torch.Tensor],
    settings: Settings,
    target: TargetShape,
    notes: list[str],
) -> int:
    """The target's tokens, by the head's own tensors, then by its config."""
    if "t2d" in tensors:
        return tensors["t2d"].numel()
    if _EMBEDDING in tensors:
        return len(tensors[_EMBEDDING])
    said = settings.integer("vocab_size") or target.vocab_size
    if "d2t" in tensors and said == tensors["d2t"].numel() < target.vocab_size:
        notes.append(f"vocab_size in config.json, {said}, is that of the head and not the target's")
        return target.vocab_size
    return said


def _has(
    key: str,
    field: str,
    tensors: Mapping[str, torch.Tensor],
    settings: Settings,
    notes: list[str],
) -> bool:
    present, said = key in tensors, settings.flag(field)
    if said is not None and said != present:
        notes.append(f"{field} is {present} by the tensors, {said} by config.json")
    return present


def _variants(
    config: Eagle3Config, readings: tuple[tuple[int, ...], ...], shape: LayerShape
) -> tuple[Eagle3Config, ...]:
    """All conventions that engines and trainers differ in, the declared one first.

    ``norm_before_residual`` has other defaults in other projects, and ``norm_output`` another
    meaning: with SpecForge it only says that the LM head reads normed states.
    """
    return tuple(
        replace(
            config,
            layer=layer,
            feature_layers=layers,
            norm_before_residual=config.norm_before_residual != other_residual,
            norm_output=config.norm_output != other_output,
        )
        for layer, layers, other_residual, other_output in product(
            (shape.layer, *shape.others), readings, (False, True), (False, True)
        )
    )
