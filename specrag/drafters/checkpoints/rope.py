"""The rotary parameters of a draft head, from any of the ways in which files write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from specrag.drafters.checkpoints.settings import Settings
from specrag.drafters.heads.config import DEFAULT_ROPE
from specrag.errors import ModelError, suggest

_TYPES = ("default", *ROPE_INIT_FUNCTIONS)


def rope_parameters(settings: Settings, name: str) -> dict[str, Any]:
    """Returns the rotary parameters as transformers writes them today.

    Read are ``rope_parameters``, flat or one for each kind of layer, and the older pair of
    ``rope_theta`` and ``rope_scaling`` with ``rope_type`` or ``type``. What a file leaves out is
    that of EAGLE's own code, theta 10000 and no scaling, whatever the target has.

    Args:
        settings: Of the head.
        name: Of the head, for messages.

    Raises:
        ModelError: The type is unknown, or only a part of each head is rotated.
    """
    newer = settings.mapping("rope_parameters")
    given = dict(_of_one_kind(newer) if newer else settings.mapping("rope_scaling") or {})
    old_type = given.pop("type", None)
    kind = given.get("rope_type") or old_type or "default"
    if given.pop("mrope_section", None) and kind == "mrope":
        kind = "default"  # in text all sections stand at the same position
    if kind not in _TYPES:
        raise ModelError(
            f"the draft head {name!r} has positions of the unknown type {kind!r}; "
            f"{suggest(str(kind), _TYPES)}"
        )
    partial = given.pop("partial_rotary_factor", settings.fields.get("partial_rotary_factor", 1.0))
    if partial != 1.0:
        raise ModelError(
            f"the draft head {name!r} rotates {partial!r} of each attention head; specrag rotates "
            "whole ones only",
            hint="use a head with whole rotation, or train one: specrag train eagle",
        )
    theta = given.get("rope_theta") or settings.number("rope_theta", DEFAULT_ROPE["rope_theta"])
    return {**given, "rope_type": kind, "rope_theta": float(theta)}


def _of_one_kind(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """One of those that stand for kinds of layers; a draft layer attends to everything."""
    for kind in ("sliding_attention", "full_attention"):  # the choice of speculators
        inner = parameters.get(kind)
        if isinstance(inner, Mapping):
            return inner
    return parameters
