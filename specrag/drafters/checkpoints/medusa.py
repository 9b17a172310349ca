"""Medusa heads: from tensors and settings to a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch

from specrag.drafters.checkpoints.checkpoint import HeadCheckpoint
from specrag.drafters.checkpoints.draft_vocabulary import check_token_ids
from specrag.drafters.checkpoints.family import Family
from specrag.drafters.checkpoints.settings import Settings
from specrag.drafters.checkpoints.target_shape import TargetShape
from specrag.drafters.heads.medusa import MedusaConfig
from specrag.errors import ModelError

_BLOCK = re.compile(r"^heads\.(\d+)\.(\d+)\.linear\.(weight|bias)$")
_VOCABULARY = re.compile(r"^lm_heads\.(\d+)(?:\.after\.(\d+)|\.weight)$")
_SHARED_VOCABULARY, _TOKENS = "lm_head.weight", "token_map"

Blocks = dict[int, dict[int, dict[str, torch.Tensor]]]


def read_medusa(
    tensors: Mapping[str, torch.Tensor], settings: Settings, target: TargetShape, name: str
) -> HeadCheckpoint:
    """Reads heads of the authors, old and new, alone or inside a model's file, or of vLLM.

    Args:
        tensors: Under the names of ``plain_names``.
        settings: Of the heads.
        target: What they are read against.
        name: Of the heads.

    Raises:
        ModelError: A head is missing or has another shape than the others.
    """
    notes: list[str] = []
    blocks = _blocks(tensors, name)
    num_heads = len(blocks)
    said = settings.integer("medusa_num_heads") or settings.integer("num_heads")
    if said is not None and said != num_heads:
        notes.append(f"there are {num_heads} heads by the tensors, {said} by config.json")
    vocabularies, stated = _vocabularies(tensors, settings, num_heads, name, notes)
    num_layers = stated or len(blocks[0])
    shared = num_layers > 1 and _share(blocks)
    if len(blocks[0]) not in ((1, num_layers) if shared else (num_layers,)):
        raise ModelError(
            f"the Medusa heads {name!r} have {len(blocks[0])} of {num_layers} blocks each",
            hint="fetch the heads again",
        )
    ids = _token_ids(tensors, target, name)
    rows = len(vocabularies[0]) if vocabularies else (None if ids is None else len(ids))
    config = MedusaConfig(
        hidden_size=blocks[0][0]["weight"].shape[-1],
        vocab_size=target.vocab_size if ids is not None else rows or target.vocab_size,
        num_heads=num_heads,
        num_layers=num_layers,
        shared_layers=shared,
        own_lm_head=bool(vocabularies),
        draft_vocab_size=rows if ids is not None else None,
        bias="bias" in blocks[0][0],
    )
    kept = {
        f"heads.{head}.{number}.linear.{part}": tensor
        for head, parts in blocks.items()
        for number, block in parts.items()
        if number == 0 or not shared
        for part, tensor in block.items()
    }
    kept |= {f"lm_heads.{head}.weight": rows for head, rows in enumerate(vocabularies)}
    return HeadCheckpoint(
        name, Family.MEDUSA, config, kept, ids, variants=(config,), notes=tuple(notes)
    )


def _blocks(tensors: Mapping[str, torch.Tensor], name: str) -> Blocks:
    blocks: Blocks = {}
    for key, tensor in tensors.items():
        if found := _BLOCK.match(key):
            parts = blocks.setdefault(int(found[1]), {}).setdefault(int(found[2]), {})
            parts[found[3]] = tensor
        elif not _VOCABULARY.match(key) and key not in (_SHARED_VOCABULARY, _TOKENS):
            raise ModelError(
                f"the Medusa heads {name!r} hold {key!r}, which specrag knows no use for",
                hint="specrag reads the layouts of the authors and of vLLM",
            )
    shapes = {head: _shape(parts) for head, parts in blocks.items()}
    if sorted(blocks) != list(range(len(blocks))) or len(set(shapes.values())) > 1:
        raise ModelError(
            f"the Medusa heads {name!r} are not alike, or some are missing: {shapes}",
            hint="fetch the heads again",
        )
    return dict(sorted(blocks.items()))


def _shape(parts: Mapping[int, Mapping[str, torch.Tensor]]) -> str:
    """Numbers of the blocks and what each holds, with sizes."""
    return "; ".join(
        f"block {number}: "
        + ", ".join(f"{key} {tuple(block[key].shape)}" for key in sorted(block, reverse=True))
        for number, block in sorted(parts.items())
    )


def _share(blocks: Blocks) -> bool:
    """Whether the blocks of each head are one: the authors' code repeats a single module."""
    return all(
        block.keys() == parts[0].keys()
        and all(torch.equal(block[key], parts[0][key]) for key in block)
        for parts in blocks.values()
        for block in parts.values()
    )


def _vocabularies(
    tensors: Mapping[str, torch.Tensor],
    settings: Settings,
    num_heads: int,
    name: str,
    notes: list[str],
) -> tuple[list[torch.Tensor], int | None]:
    """The LM head of each head, and how many blocks come before it where the names tell."""
    found: dict[int, torch.Tensor] = {}
    depths: set[int] = set()
    for key, tensor in tensors.items():
        if match := _VOCABULARY.match(key):
            found[int(match[1])] = tensor
            if match[2]:
                depths.add(int(match[2]))
    if not found and _SHARED_VOCABULARY in tensors:
        if settings.flag("original_lm_head"):
            notes.append("its LM head is the target's, and left out")
        else:
            found = dict.fromkeys(range(num_heads), tensors[_SHARED_VOCABULARY])
    if found and (sorted(found) != list(range(num_heads)) or len(depths) > 1):
        raise ModelError(
            f"the Medusa heads {name!r} are {num_heads}, and {len(found)} of them have an LM head "
            f"of their own: {sorted(found)}",
            hint="fetch the heads again",
        )
    if len({tuple(tensor.shape) for tensor in found.values()}) > 1:
        raise ModelError(f"the LM heads of the Medusa heads {name!r} differ in their shapes")
    return [found[head] for head in sorted(found)], next(iter(depths), None)


def _token_ids(
    tensors: Mapping[str, torch.Tensor], target: TargetShape, name: str
) -> torch.Tensor | None:
    tokens = tensors.get(_TOKENS)
    if tokens is None:
        return None
    ids = tokens.long().flatten()
    check_token_ids(ids, target.vocab_size, _TOKENS, name)
    return ids
