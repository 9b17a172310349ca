"""HeadCheckpoint: a draft head as read from a file, ready to be built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import torch
from torch import nn

from specrag.drafters.checkpoints.family import Family
from specrag.drafters.heads.config import DraftLayerConfig, Eagle3Config, EagleConfig
from specrag.drafters.heads.eagle import EagleHead
from specrag.drafters.heads.eagle3 import Eagle3Head
from specrag.drafters.heads.layer import Rotary
from specrag.drafters.heads.medusa import MedusaConfig, MedusaHeads

HeadConfig = EagleConfig | Eagle3Config | MedusaConfig
DraftHead = EagleHead | Eagle3Head | MedusaHeads


@dataclass(frozen=True, slots=True)
class HeadCheckpoint:
    """A draft head, its tensors under the names of specrag's modules.

    Attributes:
        name: What users call it.
        family: Its kind.
        config: Its shape, by what its file declares.
        tensors: Exactly those of the module, at whatever precision the file has.
        draft_token_ids: ``[draft vocab]`` int64, the target's token for each of the head's; None
            where the head names every token by the target's number.
        variants: Every shape that the file may mean, ``config`` first. They differ in
            conventions that no tensor tells; ``probe`` finds the one that agrees with the target.
        notes: What was inferred, overruled or left out, a sentence each.
    """

    name: str
    family: Family
    config: HeadConfig
    tensors: Mapping[str, torch.Tensor]
    draft_token_ids: torch.Tensor | None = None
    variants: tuple[HeadConfig, ...] = ()
    notes: tuple[str, ...] = ()

    def build(
        self,
        config: HeadConfig | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
    ) -> DraftHead:
        """Returns the network with the tensors in it, in evaluation mode.

        The tensors are shared, not copied, where precision and device are theirs already.

        Args:
            config: One of ``variants``; None takes ``config``.
            dtype: Precision to compute in; None keeps the file's.
            device: Where to; None leaves them.
        """
        head = empty_head(config or self.config)
        tensors = {key: value.to(device, dtype) for key, value in self.tensors.items()}
        head.load_state_dict(tensors, assign=True)
        return head.to(device).eval().requires_grad_(False)

    def with_config(self, config: HeadConfig, *notes: str) -> HeadCheckpoint:
        """Returns the same under another of its variants.

        Args:
            config: The shape that holds.
            notes: Why.
        """
        variants = (config, *(other for other in self.variants if other != config))
        return replace(self, config=config, variants=variants, notes=(*self.notes, *notes))


def empty_head(config: HeadConfig) -> DraftHead:
    """Returns a network without weights, on no device; only its rotation is real.

    Args:
        config: Its shape.
    """
    with torch.device("meta"):
        head: nn.Module
        if isinstance(config, MedusaConfig):
            return MedusaHeads(config)
        head = EagleHead(config) if isinstance(config, EagleConfig) else Eagle3Head(config)
    # Computed and not read from files, so it must not stay without values.
    head.rotary = Rotary(config.layer)
    return head


def differences(config: HeadConfig, other: HeadConfig) -> str:
    """Names the fields in which one shape differs from another.

    Args:
        config: The shape described.
        other: What it is compared with.

    Returns:
        Such as ``feature_layers=(2, 5, 8), norm_output=True``; empty where nothing differs.
    """
    parts = []
    for field in fields(config):
        value, base = getattr(config, field.name), getattr(other, field.name)
        if value == base:
            continue
        if isinstance(value, DraftLayerConfig) and isinstance(base, DraftLayerConfig):
            names = [item.name for item in fields(value)]
            inner = [name for name in names if getattr(value, name) != getattr(base, name)]
            parts += [f"{name}={getattr(value, name)}" for name in inner]
        else:
            parts.append(f"{field.name}={value}")
    return ", ".join(parts)
