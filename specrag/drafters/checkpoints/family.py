"""Family: which kind of draft head a file holds, told by its tensors first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

import torch

from specrag.drafters.checkpoints.settings import Settings
from specrag.errors import ModelError

_KNOWN = "EAGLE-1, EAGLE-2, EAGLE-3 and Medusa"
# What specrag recognises and does not run: name, signs in names of tensors, signs in the config.
_OTHERS = (
    ("DSpark", r"markov_head\.|logit_head\.|confidence_head\.", "dspark"),
    ("Domino", r"prefix_gru\.|embed_proj\.", "domino"),
    ("P-EAGLE", r"mask_hidden$", "peagle"),
    ("DFlash", r"(?!)", "dflash"),
    ("multi-token prediction (MTP)", r"mtp(_layers)?\.|.*\b(enorm|hnorm|eh_proj)\.", "mtp"),
    ("MLP speculator", r"(speculator\.)?(emb|proj|head|ln)\.\d+\.weight$", "mlp_speculator"),
    ("Hydra", r"hydra_head\.|(.*\.)?prefix_embedding_layer\.", "hydra"),
)
_QUERIES = "layers.0.self_attn.q_proj.weight"
_LATENT = re.compile(r"layers\.\d+\.self_attn\.(kv_a_proj|q_a_proj|kv_b_proj)")
_EXPERTS = re.compile(r"layers\.\d+\.mlp\.(experts|gate|shared_expert)\.")


class Family(StrEnum):
    """The kinds of draft heads that specrag runs; EAGLE-1 and EAGLE-2 have the same weights."""

    EAGLE = "eagle"
    EAGLE3 = "eagle3"
    MEDUSA = "medusa"


def family_of(tensors: Mapping[str, torch.Tensor], settings: Settings, name: str) -> Family:
    """Tells the family of a head.

    Args:
        tensors: Under the names of ``plain_names``.
        settings: Of the head.
        name: Of the head, for messages.

    Raises:
        ModelError: It is of a family that specrag does not run, or no draft head.
    """
    _refuse_others(tensors, settings, name)
    if any(re.match(r"heads\.\d+\.\d+\.", key) for key in tensors):
        return Family.MEDUSA
    if _QUERIES in tensors and "fc.weight" in tensors:
        read, width = tensors[_QUERIES].shape[-1], tensors["fc.weight"].shape[0]
        if read == 2 * width:
            return Family.EAGLE3
        if read == width and "hidden_norm.weight" not in tensors:
            return Family.EAGLE
        if read == width:
            raise _not_run("DFlash", name)
    raise ModelError(
        f"the files of {name!r} hold no draft head that specrag knows: {_shown(tensors)}",
        hint=_hint(tensors),
    )


def _refuse_others(tensors: Mapping[str, torch.Tensor], settings: Settings, name: str) -> None:
    said = " ".join((settings.speculators_type or "", settings.architectures)).lower()
    for family, sign, word in _OTHERS:
        if any(re.match(sign, key) for key in tensors) or word in said:
            raise _not_run(family, name)
    if "dflash_config" in settings.fields:
        raise _not_run("DFlash", name)
    for what, pattern in (("latent attention", _LATENT), ("a mixture of experts", _EXPERTS)):
        if any(pattern.match(key) for key in tensors):
            raise ModelError(
                f"the draft head {name!r} has {what} in its layers, which specrag does not run",
                hint="use a head with the layers of a Llama, or train one: specrag train eagle",
            )


def _not_run(family: str, name: str) -> ModelError:
    return ModelError(
        f"{name!r} is a {family} head, and specrag does not run it; it runs {_KNOWN}",
        hint="use a head of these families, or train one for this target: specrag train eagle",
    )


def _hint(tensors: Mapping[str, torch.Tensor]) -> str:
    if any(re.match(r"layers\.\d+\.", key) for key in tensors) and "fc.weight" not in tensors:
        return "this looks like a whole model; let it draft as one: draft:NAME"
    return f"specrag reads {_KNOWN}"


def _shown(names: Iterable[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:5]) + (f" and {len(shown) - 5} more" if len(shown) > 5 else "")
