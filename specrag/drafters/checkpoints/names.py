"""The names of a head's tensors, brought from all formats to those of specrag's modules."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch

from specrag.errors import ModelError

# What trainers and engines put in front of every name.
_PREFIX = re.compile(r"^(?:(?:module|model|draft_model|drafter|ea_layer|eagle_module)\.)+")
_MEDUSA_PREFIX = re.compile(r"^(?:.*\.)?medusa_heads?\.")
_BLOCK = re.compile(r"^(?:(\d+)\.(\d+)\.linear|blocks\.(\d+)\.layers\.(\d+)(?:\.linear)?)\.")
_VOCABULARY = re.compile(r"^(\d+)\.(\d+)\.weight$")
_RENAMED = (
    # SafeAILab and SpecForge call the one layer of EAGLE-3 so.
    (re.compile(r"^midlayer\."), "layers.0."),
    # The first version of speculators, for EAGLE-1.
    (re.compile(r"^fusion_fc\."), "fc."),
    (re.compile(r"^transformer\."), "layers.0."),
    (re.compile(r"^(?:pre_)?lm_head_layernorm\."), "norm."),
    (re.compile(r"^embed_layernorm\."), "embedding_layernorm."),
    # What the first layer norms on its way in is, with us, the head's.
    (re.compile(r"^layers\.0\.(input_layernorm|hidden_norm)\."), r"\1."),
)
_LATER_NORM = re.compile(r"^layers\.([1-9]\d*)\.input_layernorm\.")
# The target's own, or made anew from other tensors.
_DROPPED = re.compile(r"^(?:verifier_|.*\brotary_emb\.|.*\binv_freq$)")


def plain_names(tensors: Mapping[str, torch.Tensor], name: str) -> dict[str, torch.Tensor]:
    """Returns the tensors under the names of ``EagleHead``, ``Eagle3Head`` and ``MedusaHeads``.

    Names that belong to no known format stay as they are.

    Args:
        tensors: As a file names them.
        name: Of the head, for messages.

    Raises:
        ModelError: Two tensors of the file come to the same name.
    """
    medusa = _medusa_names(tensors)
    renamed = medusa or {key: _plain(key) for key in tensors}
    plain: dict[str, torch.Tensor] = {}
    for key, new in renamed.items():
        if _DROPPED.match(new):
            continue
        if new in plain:
            raise ModelError(
                f"the draft head {name!r} holds {new!r} twice, once as {key!r}",
                hint="the file mixes two formats; fetch the head again",
            )
        plain[new] = tensors[key]
    return plain


def _plain(key: str) -> str:
    key = _PREFIX.sub("", key)
    for pattern, new in _RENAMED:
        key = pattern.sub(new, key)
    return _LATER_NORM.sub(lambda found: f"input_layernorms.{int(found[1]) - 1}.", key)


def _medusa_names(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """File name to plain name, of the tensors of Medusa heads; none where there are none."""
    stripped = {key: _MEDUSA_PREFIX.sub("", key) for key in tensors}
    # A Medusa-2 file holds the whole model, its heads under a prefix.
    inside = {key: new for key, new in stripped.items() if new != key}
    stripped = inside or {key: _PREFIX.sub("", key) for key in tensors}
    if not any(_BLOCK.match(new) for new in stripped.values()):
        return {}
    return {key: _medusa_name(new) for key, new in stripped.items()}


def _medusa_name(key: str) -> str:
    if found := _BLOCK.match(key):
        head, block = (int(part) for part in found.groups() if part is not None)
        return f"heads.{head}.{block}.linear.{key[found.end() :]}"
    if found := _VOCABULARY.match(key):
        # How many blocks a head has, also where the file holds the shared one only once.
        return f"lm_heads.{int(found[1])}.after.{int(found[2])}"
    return key
