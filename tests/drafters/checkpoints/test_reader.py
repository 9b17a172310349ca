"""Whole files of every public format, written from a seeded head: same tensors, same outputs."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.drafters.checkpoints.checkpoint import (
    DraftHead,
    HeadCheckpoint,
    HeadConfig,
    differences,
    empty_head,
)
from specrag.drafters.checkpoints.family import Family
from specrag.drafters.checkpoints.reader import checkpoint_of, read_checkpoint
from specrag.drafters.heads.config import DraftLayerConfig, Eagle3Config, EagleConfig
from specrag.drafters.heads.feature_head import FeatureHead
from specrag.drafters.heads.medusa import MedusaConfig, MedusaHeads
from specrag.drafters.heads.teacher import teacher_forced
from specrag.errors import ModelError
from tests.drafters.checkpoints.kit import (
    LAYERS,
    SHAPE,
    VOCAB,
    WIDTH,
    Tensors,
    authors_names,
    cyclic_target,
    eagle3_settings,
    embeddings,
    engine_names,
    files,
    offsets,
    seeded,
    written,
)

LAYER = DraftLayerConfig(WIDTH, 48, 4, 2, 16, norm_eps=1e-5)
CHOSEN = tuple(range(1, VOCAB, 2))
CANONICAL = (1, 3, 4)
IDS = "eagle_aux_hidden_state_layer_ids"
OUTER = ("draft_vocab_size", "norm_before_residual", "norm_output", IDS, "target_hidden_size")


def eagle3(**changes: Any) -> Eagle3Config:
    config = Eagle3Config(LAYER, VOCAB, len(CHOSEN), WIDTH, CANONICAL)
    return replace(config, **changes)


def config_of(config: Eagle3Config, **changes: Any) -> dict[str, Any]:
    """A plain config.json that says everything that no tensor tells."""
    said = eagle3_settings(
        rms_norm_eps=config.layer.norm_eps,
        draft_vocab_size=config.draft_vocab_size,
        num_hidden_layers=config.num_layers,
        norm_before_residual=config.norm_before_residual,
        norm_output=config.norm_output,
        head_dim=config.layer.head_dim,
        num_attention_heads=config.layer.num_heads,
        num_key_value_heads=config.layer.num_kv_heads,
    )
    return {**said, **changes}


def as_speculators(config: Eagle3Config) -> dict[str, Any]:
    said = config_of(config)
    inner = {key: value for key, value in said.items() if key not in OUTER}
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "transformer_layer_config": {**inner, "model_type": "llama"},
        "speculators_config": {"algorithm": "eagle3", "verifier": {"name_or_path": "x/y"}},
        **{key: said[key] for key in OUTER if key in said},
        IDS: [layer + 1 for layer in config.feature_layers],
    }


def outputs(head: DraftHead) -> list[torch.Tensor]:
    noise = torch.Generator().manual_seed(9)
    states = [torch.randn(1, 7, WIDTH, generator=noise) for _ in head.feature_layers]
    if isinstance(head, MedusaHeads):
        return [head(states[0])]
    assert isinstance(head, FeatureHead)
    return teacher_forced(head, states, torch.randn(1, 8, WIDTH, generator=noise), depth=2)


def same(checkpoint: HeadCheckpoint, config: HeadConfig, tensors: Tensors) -> None:
    assert checkpoint.config == config == checkpoint.variants[0]
    assert checkpoint.tensors.keys() == tensors.keys()
    assert all(torch.equal(checkpoint.tensors[key], value) for key, value in tensors.items())
    head = empty_head(config)
    head.load_state_dict(tensors, assign=True)
    for found, wanted in zip(outputs(checkpoint.build()), outputs(head), strict=True):
        assert torch.equal(found, wanted)


FLAGS = ("norm_before_residual", "norm_output", "norm_before_fc", "fc_norm", "fc_bias")
LAYER_FLAGS = ("qkv_bias", "output_bias", "mlp_bias", "qk_norm")


@settings(deadline=None, max_examples=15)
@given(
    flags=st.fixed_dictionaries({flag: st.booleans() for flag in FLAGS}),
    layer=st.fixed_dictionaries({flag: st.booleans() for flag in LAYER_FLAGS}),
    num_layers=st.integers(1, 3),
    own=st.tuples(st.booleans(), st.booleans()),
    style=st.sampled_from(["authors", "engine", "speculators", "modelopt"]),
)
def test_eagle3_of_every_format(
    flags: dict[str, bool],
    layer: dict[str, Any],
    num_layers: int,
    own: tuple[bool, bool],
    style: str,
) -> None:
    config = eagle3(
        layer=replace(LAYER, **layer),
        num_layers=num_layers,
        own_embedding=own[0],
        own_lm_head=own[1],
        **flags,
    )
    tensors = seeded(empty_head(config))
    named = authors_names(tensors) if style == "authors" else engine_names(tensors)
    said = as_speculators(config) if style == "speculators" else config_of(config)
    if style == "modelopt":
        said["eagle_config"] = {IDS: list(CANONICAL), "use_aux_hidden_state": True}
    tables = {"d2t": offsets(CHOSEN), "verifier_norm.weight": torch.ones(WIDTH)}
    checkpoint = checkpoint_of(files({**named, **tables}, said), SHAPE)
    same(checkpoint, config, tensors)
    assert checkpoint.family is Family.EAGLE3
    assert checkpoint.draft_token_ids is not None
    assert checkpoint.draft_token_ids.tolist() == list(CHOSEN)
    assert all(checkpoint.variants.count(variant) == 1 for variant in checkpoint.variants)
    for flag in ("norm_before_residual", "norm_output"):
        assert {getattr(variant, flag) for variant in checkpoint.variants} == {False, True}


@settings(deadline=None, max_examples=10)
@given(
    layer=st.fixed_dictionaries({flag: st.booleans() for flag in LAYER_FLAGS}),
    flags=st.fixed_dictionaries(
        {flag: st.booleans() for flag in ("fc_bias", "input_norms", "final_norm")}
    ),
    num_layers=st.integers(1, 3),
    style=st.sampled_from(["authors", "speculators"]),
)
def test_eagle_of_every_format(
    layer: dict[str, Any], flags: dict[str, bool], num_layers: int, style: str
) -> None:
    config = EagleConfig(replace(LAYER, **layer), VOCAB, num_layers, **flags)
    tensors = seeded(empty_head(config))
    renamed = {"fc.": "fusion_fc.", "layers.0.": "transformer.", "norm.": "pre_lm_head_layernorm."}
    named = tensors
    for ours, theirs in renamed.items() if style == "speculators" else ():
        named = {
            theirs + key.removeprefix(ours) if key.startswith(ours) else key: value
            for key, value in named.items()
        }
    later = {
        f"layers.{int(key.split('.')[1]) + 1}.input_layernorm.weight": value
        for key, value in named.items()
        if key.startswith("input_layernorms.")
    }
    named = {key: v for key, v in named.items() if not key.startswith("input_layernorms.")}
    said = config_of(eagle3(), bias=config.fc_bias)
    copy = {"embed_tokens.weight": embeddings()}
    checkpoint = checkpoint_of(files({**named, **later, **copy}, said), SHAPE)
    same(checkpoint, config, tensors)
    assert checkpoint.family is Family.EAGLE
    assert checkpoint.draft_token_ids is None


def medusa_file(tensors: Tensors, config: MedusaConfig, style: str) -> Tensors:
    named: Tensors = {}
    repeats = config.num_layers if config.shared_layers else 1
    for key, value in tensors.items():
        kind, head, *rest = key.split(".")
        if kind == "lm_heads":
            name = f"{head}.{config.num_layers}.weight"
            named[f"lm_heads.{head}.weight" if style == "vllm" else name] = value
            continue
        for number in range(repeats):
            at, part = number if repeats > 1 else int(rest[0]), rest[-1]
            name = f"{head}.{at}.linear.{part}"
            named[f"blocks.{head}.layers.{at}.{part}" if style == "vllm" else name] = value
    if style == "inside":
        named = {f"medusa_head.{key}": value for key, value in named.items()}
        named["model.layers.0.self_attn.q_proj.weight"] = torch.zeros(2, 2)
        named["lm_head.weight"] = torch.zeros(VOCAB, WIDTH)
    return named


@pytest.mark.parametrize("style", ["authors", "vllm", "inside"])
@pytest.mark.parametrize(
    "config",
    [
        MedusaConfig(WIDTH, VOCAB, 3),
        MedusaConfig(WIDTH, VOCAB, 2, own_lm_head=True),
        MedusaConfig(WIDTH, VOCAB, 12, num_layers=2, bias=False, own_lm_head=True),
        MedusaConfig(WIDTH, VOCAB, 2, num_layers=3, shared_layers=True, own_lm_head=True),
        MedusaConfig(WIDTH, VOCAB, 2, num_layers=3, shared_layers=True),
    ],
)
def test_medusa_of_every_format(config: MedusaConfig, style: str) -> None:
    tensors = seeded(empty_head(config))
    named = medusa_file(tensors, config, style)
    checkpoint = checkpoint_of(files(named, {"medusa_num_heads": config.num_heads}), SHAPE)
    same(checkpoint, config, tensors)
    assert (checkpoint.family, checkpoint.notes) == (Family.MEDUSA, ())


def test_from_disk_with_what_was_inferred_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tensors = seeded(empty_head(eagle3()))
    named = {**authors_names(tensors), "d2t": offsets(CHOSEN), "embed_tokens.weight": embeddings()}
    place = written(tmp_path / "head", named, config_of(eagle3(), num_hidden_layers=40))
    with caplog.at_level(logging.INFO, "specrag.drafters.checkpoints.reader"):
        checkpoint = read_checkpoint(str(place), cyclic_target())
    same(checkpoint, eagle3(), tensors)  # the target's embeddings were left out
    assert "num_hidden_layers is 1 by the tensors, 40 by config.json" in caplog.text
    assert "those of the authors: (1, 3, 4)" in caplog.text


@pytest.mark.parametrize(
    ("dtype", "own"), [(torch.float16, False), (torch.bfloat16, False), (torch.float32, True)]
)
def test_embeddings_are_left_out_where_they_are_the_target_s(dtype: torch.dtype, own: bool) -> None:
    tensors = {**seeded(empty_head(eagle3())), "d2t": offsets(CHOSEN)}
    changed = embeddings() + (0.05 if own else 0.0)
    tensors["embed_tokens.weight"] = changed.to(dtype)
    found = checkpoint_of(files(tensors, config_of(eagle3())), SHAPE, embeddings())
    assert isinstance(found.config, Eagle3Config)
    assert found.config.own_embedding is own


def test_a_config_that_is_missing() -> None:
    layer = replace(LAYER, qk_norm=True, norm_eps=1e-6)
    config = eagle3(layer=layer)
    tensors = seeded(empty_head(config))
    same(checkpoint_of(files({**tensors, "d2t": offsets(CHOSEN)}), SHAPE), config, tensors)


def test_a_config_that_contradicts_the_tensors() -> None:
    config = eagle3(fc_norm=True)
    tensors = {**seeded(empty_head(config)), "d2t": offsets(CHOSEN)}
    said = config_of(
        config,
        draft_vocab_size=7,
        fc_norm=False,
        norm_before_fc=True,
        target_hidden_size=9,
        vocab_size=len(CHOSEN),
    )
    found = checkpoint_of(files(tensors, said), SHAPE)
    assert found.config == config
    assert found.notes[:2] == (
        "target_hidden_size is 64 by fc, 9 by config.json",
        "feature layers taken to be those of the authors: (1, 3, 4)",
    )
    assert set(found.notes[2:]) == {
        "vocab_size in config.json, 32, is that of the head and not the target's",
        "draft_vocab_size is 32 by the tensors, 7 by config.json",
        "norm_before_fc is False by the tensors, True by config.json",
        "fc_norm is True by the tensors, False by config.json",
    }


def test_what_a_speculators_file_leaves_open_is_said() -> None:
    said = as_speculators(eagle3())
    del said["norm_before_residual"]
    tensors = {**engine_names(seeded(empty_head(eagle3()))), "d2t": offsets(CHOSEN)}
    assert "norm_before_residual is not stated, and taken to be false" in (
        checkpoint_of(files(tensors, said), SHAPE).notes
    )


def test_an_untold_head_width_gives_variants() -> None:
    config = eagle3(layer=DraftLayerConfig(WIDTH, 48, 8, 4, 64))
    tensors = {**seeded(empty_head(config)), "d2t": offsets(CHOSEN)}
    found = checkpoint_of(files(tensors), SHAPE)
    variants = [v for v in found.variants if isinstance(v, Eagle3Config)]
    assert {variant.layer.head_dim for variant in variants} == {16, 64, 128}
    assert config in found.variants


def test_eagle_notes() -> None:
    config = EagleConfig(LAYER, VOCAB, fc_bias=False)
    tensors = {**seeded(empty_head(config)), "lm_head.weight": torch.ones(VOCAB, WIDTH)}
    found = checkpoint_of(files(tensors, config_of(eagle3())), SHAPE)
    assert found.notes == (
        "fc has no bias by the tensors; config.json says nothing",
        "its LM head is left out: that of the target is read",
    )


def test_medusa_notes_and_tables() -> None:
    config = MedusaConfig(WIDTH, VOCAB, 2, own_lm_head=True, draft_vocab_size=len(CHOSEN))
    tensors = seeded(empty_head(config))
    named = {**medusa_file(tensors, config, "vllm"), "token_map": torch.tensor(CHOSEN)}
    found = checkpoint_of(files(named, {"num_heads": 5}), SHAPE)
    same(found, config, tensors)
    assert found.draft_token_ids is not None
    assert found.draft_token_ids.tolist() == list(CHOSEN)
    assert found.notes == ("there are 2 heads by the tensors, 5 by config.json",)


def test_medusa_heads_that_share_one_lm_head() -> None:
    plain = MedusaConfig(WIDTH, VOCAB, 2)
    named = medusa_file(seeded(empty_head(plain)), plain, "vllm")
    named["lm_head.weight"] = torch.ones(VOCAB, WIDTH)
    found = checkpoint_of(files(named), SHAPE)
    assert found.config == replace(plain, own_lm_head=True)
    assert found.tensors["lm_heads.0.weight"] is found.tensors["lm_heads.1.weight"]
    found = checkpoint_of(files(named, {"original_lm_head": True}), SHAPE)
    assert found.config == plain
    assert found.notes == ("its LM head is the target's, and left out",)


def test_shared_blocks_that_the_file_holds_once() -> None:
    config = MedusaConfig(WIDTH, VOCAB, 2, num_layers=3, shared_layers=True, own_lm_head=True)
    tensors = seeded(empty_head(config))
    named = medusa_file(tensors, config, "authors")
    once = {key: v for key, v in named.items() if ".linear." not in key or key[1:4] == ".0."}
    same(checkpoint_of(files(once), SHAPE), config, tensors)


def test_differences_name_the_fields() -> None:
    config = eagle3()
    other = replace(
        config, norm_output=True, feature_layers=(2, 4, 5), layer=replace(LAYER, head_dim=8)
    )
    assert differences(other, config) == "head_dim=8, feature_layers=(2, 4, 5), norm_output=True"
    assert differences(config, config) == ""


def test_build_takes_precision_and_variant() -> None:
    tensors = {**seeded(empty_head(eagle3())), "d2t": offsets(CHOSEN)}
    found = checkpoint_of(files(tensors, config_of(eagle3())), SHAPE)
    head = found.build(found.variants[-1], torch.bfloat16)
    assert head.config == found.variants[-1]
    assert {value.dtype for value in head.state_dict().values()} == {torch.bfloat16}
    assert not head.training
    assert not any(parameter.requires_grad for parameter in head.parameters())
    shared = found.build().state_dict()["fc.weight"]
    assert shared.data_ptr() == found.tensors["fc.weight"].data_ptr()
    moved = found.with_config(found.variants[2], "because")
    assert moved.config == moved.variants[0] == found.variants[2]
    assert sorted(map(str, moved.variants)) == sorted(map(str, found.variants))
    assert moved.notes[-1] == "because"


EAGLE3 = {**seeded(empty_head(eagle3())), "d2t": offsets(CHOSEN)}
EAGLE = seeded(empty_head(EagleConfig(LAYER, VOCAB)))
MEDUSA_CONFIG = MedusaConfig(WIDTH, VOCAB, 3, own_lm_head=True)
MEDUSA = medusa_file(seeded(empty_head(MEDUSA_CONFIG)), MEDUSA_CONFIG, "authors")


def without(tensors: Tensors, *keys: str) -> Tensors:
    return {key: value for key, value in tensors.items() if key not in keys}


@pytest.mark.parametrize(
    ("tensors", "config", "said"),
    [
        (EAGLE3, {"vocab_size": 99}, "vocabulary of 99 tokens, the target has 64"),
        (
            {**EAGLE3, "t2d": torch.ones(99, dtype=torch.bool)},
            {},
            "vocabulary of 99 tokens, the target has 64",
        ),
        ({**EAGLE3, "embed_tokens.weight": torch.ones(70, WIDTH)}, {}, "of 70 tokens"),
        ({**EAGLE, "embed_tokens.weight": torch.ones(70, WIDTH)}, {}, "of 70 tokens"),
        (EAGLE3, {IDS: [2, 4, 9]}, r"reads layers \(1, 3, 8\), the target has 0 to 7"),
        ({**EAGLE3, "d2t": torch.full((32,), 64)}, {}, "32 of 32 lie outside, the first is 64"),
        ({**EAGLE3, "fc.weight": torch.zeros(WIDTH, 100)}, {}, "takes in 100 numbers"),
        (without(EAGLE3, "norm.weight"), {}, r"lacks norm\.weight"),
        (without(EAGLE3, "layers.0.mlp.up_proj.weight"), {}, "lacks layers.0.mlp.up_proj"),
        (without(EAGLE3, "d2t"), {}, "names 32 tokens and the target has 64, but no d2t"),
        ({**EAGLE3, "gate.weight": torch.ones(1)}, {}, r"has no use for gate\.weight"),
        (
            {**EAGLE3, "norm.weight": torch.ones(3)},
            {},
            r"norm\.weight \(3,\) in place of \(64,\)",
        ),
        (
            {**EAGLE3, "norm.weight": torch.full((WIDTH,), torch.nan)},
            {},
            r"infinities or NaN in norm\.weight",
        ),
        (
            {**EAGLE3, "norm.weight": torch.ones(WIDTH, dtype=torch.int8)},
            {},
            r"quantized or whole numbers: norm\.weight as torch\.int8",
        ),
        (EAGLE3, {"rope_scaling": {"type": "linear"}}, "positions .* cannot be computed"),
        ({**EAGLE, "input_layernorm.weight": torch.ones(WIDTH)}, {}, "norm in front of its first"),
        (without(EAGLE, "layers.0.post_attention_layernorm.weight"), {}, "lacks layers.0.post"),
        (without(MEDUSA, "1.0.linear.bias"), {}, "not alike, or some are missing"),
        (without(MEDUSA, "1.0.linear.bias", "1.0.linear.weight"), {}, "some are missing"),
        (without(MEDUSA, "2.1.weight"), {}, r"are 3, and 2 of them have an LM head"),
        ({**MEDUSA, "2.1.weight": torch.ones(3, WIDTH)}, {}, "differ in their shapes"),
        ({**MEDUSA, "extra": torch.ones(3)}, {}, "hold 'extra'"),
        ({**MEDUSA, "token_map": torch.arange(64, 128)}, {}, "token_map .* 64 of 64 lie outside"),
        (
            {key: v[:, :32] if v.dim() == 2 else v for key, v in EAGLE.items()},
            {},
            "no draft head that specrag knows",
        ),
    ],
)
def test_what_does_not_fit_is_refused(tensors: Tensors, config: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        checkpoint_of(files(tensors, {"head_dim": 16, **config}), SHAPE)


def test_a_head_of_another_width_names_both() -> None:
    other = replace(SHAPE, hidden_size=96, vocab_size=80)
    for tensors, width in ((EAGLE, 64), (MEDUSA, 64)):
        with pytest.raises(ModelError) as caught:
            checkpoint_of(files(tensors, {"head_dim": 16}), other)
        assert f"reads states {width} wide, the target's are 96 wide" in str(caught.value)
    with pytest.raises(ModelError) as caught:
        checkpoint_of(files(EAGLE3, {"head_dim": 16, "vocab_size": 64}), other)
    # 192 numbers are also two layers of 96.
    assert "reads 2 layers of the target" in str(caught.value)


def test_everything_that_does_not_fit_is_in_one_message() -> None:
    other = replace(SHAPE, hidden_size=50, vocab_size=80, num_layers=4)
    said = config_of(eagle3(), **{IDS: [2, 4, 5], "target_hidden_size": 64})
    with pytest.raises(ModelError) as caught:
        checkpoint_of(files(EAGLE3, said), other)
    for part in ("64 wide, the target's are 50", "64 tokens, the target has 80", "0 to 3"):
        assert part in str(caught.value)


def test_a_narrower_head_needs_its_own_embeddings() -> None:
    layer = DraftLayerConfig(32, 48, 4, 2, 16)
    config = eagle3(layer=layer, own_embedding=True)
    tensors = {**seeded(empty_head(config)), "d2t": offsets(CHOSEN)}
    said = config_of(config, hidden_size=32, rms_norm_eps=1e-6)
    assert checkpoint_of(files(tensors, said), SHAPE).config == config
    with pytest.raises(ModelError, match="32 wide and has no embeddings of its own"):
        checkpoint_of(files(without(tensors, "embed_tokens.weight"), said), SHAPE)


def test_the_shape_of_a_target() -> None:
    assert type(SHAPE).of(cyclic_target()) == SHAPE
    assert SHAPE.num_layers == LAYERS


def test_a_pickled_medusa_file_of_the_authors(tmp_path: Path) -> None:
    torch.save(MEDUSA, tmp_path / "medusa_lm_head.pt")
    said: dict[str, Sequence[int] | int] = {"medusa_num_heads": 2, "medusa_num_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps(said), encoding="utf-8")
    found = read_checkpoint(str(tmp_path), cyclic_target())
    assert found.config == MEDUSA_CONFIG
    assert found.notes == ("there are 3 heads by the tensors, 2 by config.json",)
