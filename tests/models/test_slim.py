from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from specrag.errors import ModelError
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.slim import copied_layers, load_slim, own_weights, save_slim, slim_model
from specrag.models.target import TargetModel
from specrag.models.tiny import tiny_target
from tests.architectures import SPECULATING, VOCAB, target_of

TEXT = torch.tensor([[1, 5, 9, 30, 12, 7, 7]])
IDS = torch.tensor([2, 3, 5, 8, 13, 21, 34])


@torch.no_grad()
def logits_of(model: object) -> torch.Tensor:
    found: torch.Tensor = model(input_ids=TEXT, use_cache=False).logits  # type: ignore[operator]
    return found


def saved(folder: Path, target: HuggingFaceTarget, dtype: torch.dtype = torch.float32) -> Path:
    slim = slim_model(target, 2, IDS)
    copied_layers(target, slim, [0, 3])
    save_slim(folder, slim, target, dtype)
    return folder


@pytest.mark.parametrize("name", SPECULATING)
def test_with_all_layers_and_tokens_it_is_its_target(name: str, tmp_path: Path) -> None:
    target = target_of(name)
    layers = range(len(target.decoder_layers))
    slim = slim_model(target, len(layers), torch.arange(VOCAB))
    copied_layers(target, slim, layers)
    expected = logits_of(target.model)
    assert torch.equal(logits_of(slim.eval()), expected)
    save_slim(tmp_path, slim, target, torch.float32)
    loaded = load_slim(tmp_path, target)
    assert torch.equal(logits_of(loaded.model), expected)


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "gpt2", "opt", "gpt_neox"])
def test_only_embeddings_are_shared_with_the_target(name: str) -> None:
    target = target_of(name)
    before = {key: value.clone() for key, value in target.model.state_dict().items()}
    expected = logits_of(target.model)
    slim = slim_model(target, 1, IDS)
    copied_layers(target, slim, [1])
    assert slim.get_input_embeddings() is target.model.get_input_embeddings()
    theirs = {value.data_ptr() for value in target.model.state_dict().values()}
    for key, weight in own_weights(slim).items():
        assert weight.data_ptr() not in theirs, key
        weight.data.add_(1.0)
    after = target.model.state_dict()
    assert all(torch.equal(value, after[key]) for key, value in before.items())
    assert torch.equal(logits_of(target.model), expected)


def test_it_says_only_its_tokens() -> None:
    target = tiny_target(num_layers=4)
    slim = slim_model(target, 4, IDS)
    copied_layers(target, slim, range(4))
    found, whole = logits_of(slim), logits_of(target.model)
    assert found.shape == whole.shape
    torch.testing.assert_close(found[..., IDS], whole[..., IDS])
    others = torch.ones(whole.shape[-1], dtype=torch.bool)
    others[IDS] = False
    assert bool((found[..., others] == -torch.inf).all())


def test_layers_are_those_that_were_named() -> None:
    target = tiny_target(num_layers=4)
    slim = slim_model(target, 2, IDS)
    copied_layers(target, slim, [3, 1], torch.float64)
    for ours, number in zip(slim.model.layers, (3, 1), strict=True):
        theirs = dict(target.decoder_layers[number].named_parameters())
        for key, weight in ours.named_parameters():
            assert weight.dtype == torch.float64
            assert torch.equal(weight.float(), theirs[key])


def test_what_is_loaded_has_the_precision_of_its_target(tmp_path: Path) -> None:
    target = tiny_target(num_layers=4)
    folder = saved(tmp_path, target, torch.bfloat16)
    size = (folder / "model.safetensors").stat().st_size
    whole = sum(p.numel() for p in target.model.parameters()) * 2
    assert size < whole  # neither embeddings nor LM head are in it
    loaded = load_slim(folder, target)
    assert loaded.dtype == torch.float32
    assert loaded.vocab_size == target.vocab_size
    assert loaded.eos_token_ids == target.eos_token_ids
    assert loaded.name == "slim tiny-0"
    assert not loaded.no_speculation
    assert loaded.fingerprint != target.fingerprint
    half = tiny_target(num_layers=4)
    half.model.bfloat16()
    assert load_slim(folder, half).dtype == torch.bfloat16


def test_another_target_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path, tiny_target(num_layers=4))
    with pytest.raises(ModelError, match="was made for tiny-0, with other weights") as caught:
        load_slim(folder, tiny_target(1, num_layers=4))
    assert caught.value.hint == "train one for this target: specrag train distill"
    with pytest.raises(ModelError, match="was made for tiny-0"):
        load_slim(folder, tiny_target(1, num_layers=1))
    with pytest.raises(ModelError, match="no layers that a slim model could stand beside"):
        load_slim(folder, cast(TargetModel, SimpleNamespace(name="other")))


@pytest.mark.parametrize("num_layers", [0, -1, 5])
def test_a_number_of_layers_that_is_none_is_refused(num_layers: int) -> None:
    with pytest.raises(ModelError, match=f"has 1 to 4 layers, got {num_layers}"):
        slim_model(tiny_target(num_layers=4), num_layers, IDS)


def test_layers_of_another_kind_are_refused() -> None:
    target = target_of("deepseek_v3")  # its first layer has no experts
    slim = slim_model(target, 1, torch.arange(VOCAB))
    copied_layers(target, slim, [0])
    with pytest.raises(ModelError, match="layer 1 of deepseek_v3 is of another kind"):
        copied_layers(target, slim, [1])


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "slim.json").write_text("[]"),
        lambda folder: (folder / "slim.json").write_text('{"num_layers": 2}'),
        lambda folder: (folder / "slim.json").write_text("{"),
        lambda folder: (folder / "slim.json").write_bytes(b"\xff\xfe\x00"),
        lambda folder: _cut(folder / "model.safetensors"),
        lambda folder: (folder / "model.safetensors").write_bytes(b""),
        lambda folder: (folder / "model.safetensors").unlink(),
        lambda folder: _change(folder, num_layers=1),
        lambda folder: _change(folder, num_layers=9),
        lambda folder: _change(folder, num_layers="2"),
        lambda folder: _change(folder, num_layers=None),
    ],
)
def test_damaged_files_are_refused(damage: object, tmp_path: Path) -> None:
    target = tiny_target(num_layers=4)
    damage(saved(tmp_path, target))  # type: ignore[operator]
    with pytest.raises(ModelError):
        load_slim(tmp_path, target)


def _change(folder: Path, **values: object) -> None:
    path = folder / "slim.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(content | values), encoding="utf-8")
