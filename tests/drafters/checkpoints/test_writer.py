"""Heads that are written: read back they are the same, and their files have the public names."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from specrag.drafters.checkpoints.checkpoint import HeadCheckpoint
from specrag.drafters.checkpoints.family import Family
from specrag.drafters.checkpoints.files import read_head_files
from specrag.drafters.checkpoints.reader import checkpoint_of
from specrag.drafters.checkpoints.target_shape import TargetShape
from specrag.drafters.checkpoints.writer import write_head
from specrag.drafters.eagle import EagleDrafter
from specrag.drafters.heads.config import Eagle3Config, EagleConfig
from specrag.drafters.heads.eagle import EagleHead
from specrag.drafters.heads.eagle3 import Eagle3Head
from specrag.drafters.heads.medusa import MedusaConfig, MedusaHeads
from specrag.errors import ConfigError
from specrag.models.target import FINAL_NORM
from tests.drafters.heads.runs import LAYER, LAYERS, VOCAB, WIDTH, run, seeded, with_layer
from tests.drafters.heads.test_layer import SCALED, rope
from tests.drafters.kit import TOKENIZER, target
from tests.drafters.reading import eagle_heads, medusa_heads

SHAPE = TargetShape("made up", VOCAB, WIDTH, 8, 4)
SOME = torch.tensor([1, 4, 5, 20, 29])
EAGLE3 = Eagle3Config(LAYER, VOCAB, VOCAB, WIDTH, (1, 3, 4))
EAGLE = EagleConfig(LAYER, VOCAB)
SHAPES: dict[str, EagleConfig | Eagle3Config] = {
    "eagle3": EAGLE3,
    "eagle3, its options": replace(EAGLE3, fc_bias=True, fc_norm=True, norm_before_fc=True),
    "eagle3, its conventions": replace(EAGLE3, norm_before_residual=True, norm_output=True),
    "eagle3, own embeddings": replace(EAGLE3, own_embedding=True, target_hidden_size=12),
    "eagle3, shared": replace(EAGLE3, own_lm_head=False),
    "eagle3, deep": replace(EAGLE3, num_layers=3, feature_layers=(2, 4)),
    "eagle": EAGLE,
    "eagle, deep": replace(EAGLE, num_layers=3),
    "eagle, its options": replace(EAGLE, fc_bias=False, input_norms=True, final_norm=True),
    **{f"layer, {name}": with_layer(EAGLE3, changes) for name, changes in LAYERS.items()},
    **{f"rope, {name}": with_layer(EAGLE3, {"rope": rope(name)}) for name in SCALED},
    "eagle, yarn": with_layer(EAGLE, {"rope": rope("yarn")}),
}


def back(folder: Path, shape: TargetShape = SHAPE) -> HeadCheckpoint:
    return checkpoint_of(read_head_files(str(folder)), shape)


@pytest.mark.parametrize("name", SHAPES)
def test_a_head_is_read_back_with_every_option(name: str, tmp_path: Path) -> None:
    head = seeded(SHAPES[name])
    write_head(tmp_path / "new" / "head", head, dtype=torch.float64)
    shape = SHAPE
    if isinstance(head, Eagle3Head):
        shape = replace(SHAPE, hidden_size=head.config.target_hidden_size)
    found = back(tmp_path / "new" / "head", shape)

    assert found.config == head.config
    assert found.draft_token_ids is None
    built = found.build()
    assert isinstance(built, type(head))
    for ours, wanted in zip(run(built), run(head), strict=True):
        assert torch.allclose(ours, wanted)
    assert not any("by the tensors" in note for note in found.notes)


@pytest.mark.parametrize("config", [replace(EAGLE3, own_lm_head=False, draft_vocab_size=5), EAGLE])
def test_a_trimmed_head_that_reads_the_targets_lm_head_keeps_its_tokens(
    config: EagleConfig | Eagle3Config, tmp_path: Path
) -> None:
    write_head(tmp_path, seeded(config), SOME)
    found = back(tmp_path)

    assert found.draft_token_ids is not None
    assert found.draft_token_ids.tolist() == SOME.tolist()
    assert found.config == config


MEDUSA: dict[str, tuple[MedusaConfig, torch.Tensor | None]] = {
    "plain": (MedusaConfig(WIDTH, VOCAB, 3), None),
    "own": (MedusaConfig(WIDTH, VOCAB, 2, own_lm_head=True), None),
    "trimmed": (MedusaConfig(WIDTH, VOCAB, 2, own_lm_head=True, draft_vocab_size=5), SOME),
    "deep": (MedusaConfig(WIDTH, VOCAB, 11, num_layers=2, own_lm_head=True, bias=False), None),
    "repeated": (MedusaConfig(WIDTH, VOCAB, 2, num_layers=3, shared_layers=True), None),
    "repeated, own": (
        MedusaConfig(WIDTH, VOCAB, 2, num_layers=3, shared_layers=True, own_lm_head=True),
        None,
    ),
}


@pytest.mark.parametrize("name", MEDUSA)
@torch.no_grad()
def test_medusa_heads_are_read_back(name: str, tmp_path: Path) -> None:
    config, ids = MEDUSA[name]
    heads = MedusaHeads(config)
    draw = torch.Generator().manual_seed(1)
    for parameter in heads.parameters():
        parameter.normal_(generator=draw)
    write_head(tmp_path, heads, ids, dtype=torch.float32)
    found = back(tmp_path)

    assert (found.family, found.config) == (Family.MEDUSA, config)
    assert (found.draft_token_ids is None) == (ids is None)
    built = found.build()
    assert isinstance(built, MedusaHeads)
    states = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(0))
    assert torch.equal(built(states), heads(states))
    for mine, wanted in zip(built.own_weights, heads.own_weights, strict=True):
        assert torch.equal(mine, wanted)


def test_tokens_that_a_head_can_say_are_read_back(tmp_path: Path) -> None:
    for own in (True, False):
        config = replace(EAGLE3, own_lm_head=own, draft_vocab_size=len(SOME))
        write_head(tmp_path / str(own), seeded(config), SOME)
        found = back(tmp_path / str(own))
        assert found.config == config
        assert found.draft_token_ids is not None
        assert torch.equal(found.draft_token_ids, SOME)
    write_head(tmp_path / "medusa", medusa_heads(hidden_size=WIDTH, vocab_size=VOCAB), SOME)
    ids = back(tmp_path / "medusa").draft_token_ids
    assert ids is not None
    assert torch.equal(ids, SOME)


def test_layers_from_the_very_first_on_are_one_of_the_readings(tmp_path: Path) -> None:
    # 1 means the first layer to most engines, and the second to NVIDIA's.
    head = seeded(replace(EAGLE3, feature_layers=(0, 3, 6)))
    write_head(tmp_path, head)
    assert head.config in back(tmp_path).variants


def test_states_behind_the_final_norm_have_no_number(tmp_path: Path) -> None:
    head = seeded(replace(EAGLE3, feature_layers=(1, 3, FINAL_NORM)))
    with pytest.raises(ConfigError, match=r"\(1, 3, -1\) cannot be written"):
        write_head(tmp_path / "head", head)
    assert not (tmp_path / "head").exists()


def content(folder: Path) -> tuple[dict[str, Any], set[str]]:
    with safe_open(folder / "model.safetensors", "pt") as file:
        names = set(file.keys())
    return json.loads((folder / "config.json").read_text(encoding="utf-8")), names


def test_eagle3_files_have_the_names_of_the_authors(tmp_path: Path) -> None:
    write_head(tmp_path, seeded(replace(EAGLE3, draft_vocab_size=len(SOME))), SOME)
    config, names = content(tmp_path)
    parts = ("q_proj", "k_proj", "v_proj", "o_proj")
    assert names == {
        "d2t",
        "t2d",
        "fc.weight",
        "norm.weight",
        "lm_head.weight",
        "midlayer.input_layernorm.weight",
        "midlayer.hidden_norm.weight",
        "midlayer.post_attention_layernorm.weight",
        *(f"midlayer.self_attn.{part}.weight" for part in parts),
        *(f"midlayer.mlp.{part}_proj.weight" for part in ("gate", "up", "down")),
    }
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert (config["draft_vocab_size"], config["vocab_size"]) == (5, VOCAB)
    assert config["eagle_aux_hidden_state_layer_ids"] == [2, 4, 5]
    assert config["torch_dtype"] == "bfloat16"
    files = read_head_files(str(tmp_path))
    assert (files.tensors["d2t"] + torch.arange(5)).tolist() == SOME.tolist()
    assert files.tensors["t2d"].nonzero().flatten().tolist() == SOME.tolist()
    assert files.tensors["fc.weight"].dtype == torch.bfloat16


def test_eagle_and_medusa_files_have_the_names_of_the_authors(tmp_path: Path) -> None:
    write_head(tmp_path / "eagle", seeded(replace(EAGLE, num_layers=2)))
    config, names = content(tmp_path / "eagle")
    assert (config["bias"], config["num_hidden_layers"]) == (True, 2)
    assert {"fc.weight", "fc.bias", "layers.1.input_layernorm.weight"} <= names
    assert not any(
        name.startswith(("input_layernorms", "layers.0.input_layernorm")) for name in names
    )
    write_head(tmp_path / "medusa", MedusaHeads(MedusaConfig(WIDTH, VOCAB, 1, own_lm_head=True)))
    config, names = content(tmp_path / "medusa")
    assert names == {"0.0.linear.weight", "0.0.linear.bias", "0.1.weight"}
    assert (config["medusa_num_heads"], config["medusa_num_layers"]) == (1, 1)


def test_scaled_positions_are_written_for_old_engines_too(tmp_path: Path) -> None:
    write_head(tmp_path, seeded(with_layer(EAGLE, {"rope": rope("linear")})))
    config, _ = content(tmp_path)
    assert config["rope_theta"] == 5000.0
    assert config["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}
    del config["rope_parameters"]
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    found = back(tmp_path).config
    assert isinstance(found, EagleConfig)
    assert found.layer.rope == rope("linear")


def test_a_head_may_bring_rows_of_the_targets_lm_head(tmp_path: Path) -> None:
    shared = eagle_heads(feature_layers=(1,))
    assert isinstance(shared, Eagle3Head)
    ids = torch.tensor([3, 5, 8, 44])
    rows = target().model.lm_head.weight[ids]
    write_head(tmp_path, shared, ids, lm_rows=rows, dtype=torch.float64)
    found = back(tmp_path, TargetShape.of(target()))
    assert found.config == replace(shared.config, own_lm_head=True, draft_vocab_size=len(ids))

    built = found.build()
    assert isinstance(built, Eagle3Head)
    drafters = [EagleDrafter(built, found.draft_token_ids), EagleDrafter(shared, ids)]
    states = torch.randn(2, target().model.config.hidden_size, dtype=torch.float64)
    said = []
    for drafter in drafters:
        drafter.bind(target(), TOKENIZER)
        assert drafter._projection is not None
        assert drafter._projection.token_ids.tolist() == ids.tolist()
        said.append(drafter._projection.logits(states))
    own, theirs = said
    assert torch.allclose(own, theirs)


def test_files_of_an_earlier_head_are_replaced(tmp_path: Path) -> None:
    write_head(tmp_path, seeded(EAGLE3))
    write_head(tmp_path, seeded(EAGLE))
    assert isinstance(back(tmp_path).build(), EagleHead)
