"""Family and names: what is recognised, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from specrag.drafters.checkpoints.family import Family, family_of
from specrag.drafters.checkpoints.names import plain_names
from specrag.drafters.checkpoints.settings import Settings
from specrag.errors import ModelError
from tests.drafters.checkpoints.kit import (
    Tensors,
    authors_names,
    engine_names,
    knowing_eagle,
    knowing_eagle3,
    knowing_medusa,
)

EAGLE3, EAGLE = knowing_eagle3().state_dict(), knowing_eagle().state_dict()
MEDUSA = knowing_medusa().state_dict()


def family(tensors: Tensors, config: dict[str, Any] | None = None) -> Family:
    return family_of(plain_names(tensors, "head"), Settings(config or {}, "head"), "head")


@pytest.mark.parametrize("prefix", ["", "model.", "draft_model.", "module.model."])
def test_every_family_under_every_prefix(prefix: str) -> None:
    for tensors, wanted in (
        (authors_names(EAGLE3), Family.EAGLE3),
        (engine_names(EAGLE3), Family.EAGLE3),
        (EAGLE, Family.EAGLE),
    ):
        named = {prefix + key: value for key, value in tensors.items()}
        assert family(named) is wanted
        assert plain_names(named, "head").keys() == plain_names(tensors, "head").keys()


def test_plain_names_are_those_of_the_modules() -> None:
    for renamed in (authors_names(EAGLE3), engine_names(EAGLE3), EAGLE3):
        assert plain_names(renamed, "head").keys() == EAGLE3.keys()
    assert plain_names(EAGLE, "head").keys() == EAGLE.keys()


def test_what_is_the_target_s_is_left_out() -> None:
    extra = {
        "verifier_norm.weight": torch.ones(1),
        "verifier_lm_head.weight": torch.ones(1),
        "midlayer.self_attn.rotary_emb.inv_freq": torch.ones(1),
    }
    assert plain_names({**authors_names(EAGLE3), **extra}, "head").keys() == EAGLE3.keys()


def test_names_of_two_formats_in_one_file() -> None:
    both = {**authors_names(EAGLE3), **engine_names(EAGLE3)}
    with pytest.raises(ModelError, match="twice"):
        plain_names(both, "head")


_FLASH = {
    "fc.weight": torch.zeros(4, 12),
    "hidden_norm.weight": torch.zeros(4),
    "layers.0.self_attn.q_proj.weight": torch.zeros(4, 4),
    "layers.0.self_attn.q_norm.weight": torch.zeros(2),
}


@pytest.mark.parametrize(
    ("tensors", "config", "said"),
    [
        (_FLASH, {}, "DFlash"),
        (EAGLE, {"dflash_config": {"target_layer_ids": [1]}}, "DFlash"),
        (EAGLE, {"architectures": ["DFlashDraftModel"]}, "DFlash"),
        ({**_FLASH, "markov_head.markov_w1.weight": torch.zeros(1)}, {}, "DSpark"),
        (EAGLE, {"speculators_model_type": "dspark"}, "DSpark"),
        ({**EAGLE3, "mask_hidden": torch.zeros(1, 1, 12)}, {}, "P-EAGLE"),
        (EAGLE3, {"speculators_model_type": "peagle"}, "P-EAGLE"),
        ({"mtp.fc.weight": torch.zeros(1)}, {}, r"\(MTP\)"),
        ({"model.layers.61.eh_proj.weight": torch.zeros(1)}, {}, r"\(MTP\)"),
        ({"speculator.emb.0.weight": torch.zeros(1)}, {}, "MLP speculator"),
        ({"hydra_head.0.0.linear.weight": torch.zeros(1)}, {}, "Hydra"),
        ({"midlayer.self_attn.kv_a_proj_with_mqa.weight": torch.zeros(1)}, {}, "latent"),
        ({"layers.0.mlp.experts.0.up_proj.weight": torch.zeros(1)}, {}, "mixture of experts"),
    ],
)
def test_other_families_are_refused_by_name(
    tensors: Tensors, config: dict[str, Any], said: str
) -> None:
    with pytest.raises(ModelError, match=said):
        family(tensors, config)


def test_a_whole_model_is_no_head() -> None:
    model = {
        "model.embed_tokens.weight": torch.zeros(4, 4),
        "model.layers.0.self_attn.q_proj.weight": torch.zeros(4, 4),
        "lm_head.weight": torch.zeros(4, 4),
    }
    with pytest.raises(ModelError, match=r"draft:NAME"):
        family(model)


def test_anything_else_is_named() -> None:
    with pytest.raises(ModelError, match=r"a0, a1, a2, a3, a4 and 2 more"):
        family({f"a{i}": torch.zeros(1) for i in range(7)})
