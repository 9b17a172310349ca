"""Loading: whole models come in as they were, damaged and partial ones are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from specrag.errors import ModelError
from specrag.loading import model_loading
from specrag.models.embedded import ModelSource
from specrag.models.tiny import tiny_target
from specrag.models.weights import load_network
from tests.architectures import new_model


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_missing_gpu_is_told_before_anything_is_loaded() -> None:
    with pytest.raises(ModelError, match="cannot use the device 'cuda'"):
        load_network(ModelSource("/nowhere", None, "m"), "m", device="cuda")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A tiny model in transformers' format."""
    with model_loading():
        tiny_target().model.save_pretrained(tmp_path)
    return tmp_path


def load(path: Path, dtype: str = "float32") -> Any:
    return load_network(ModelSource(str(path), None, "m"), "m", dtype=dtype, device="cpu")


def test_a_saved_model_loads_as_it_was(saved: Path) -> None:
    model = load(saved)

    assert model.dtype == torch.float32
    assert not model.training
    expected = tiny_target().model.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())
    assert load(saved, "bfloat16").dtype == torch.bfloat16


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: half(folder / "model.safetensors"),
        lambda folder: (folder / "model.safetensors").unlink(),
        lambda folder: (folder / "config.json").unlink(),
        lambda folder: half(folder / "config.json"),
        lambda folder: (folder / "config.json").write_text('{"model_type": "nope"}'),
        lambda folder: (folder / "config.json").write_text('{"model_type": "t5"}'),
    ],
    ids=["cut weights", "no weights", "no config", "cut config", "unknown kind", "no causal LM"],
)
def test_a_folder_that_cannot_be_read_is_a_model_error(
    saved: Path, damage: Callable[[Path], Any]
) -> None:
    damage(saved)

    with pytest.raises(ModelError, match="cannot load the model 'm'") as caught:
        load(saved)
    assert "local folder" in str(caught.value.hint)
    assert "\n" not in caught.value.message


def test_loading_leaves_the_settings_of_transformers_as_they_were(saved: Path) -> None:
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    load(saved)

    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


def drop(path: Path, *names: str) -> None:
    weights = {name: value for name, value in load_file(path).items() if name not in names}
    save_file(weights, path, metadata={"format": "pt"})


def test_a_model_that_lacks_weights_is_refused_and_they_are_named(saved: Path) -> None:
    drop(saved / "model.safetensors", "model.layers.1.mlp.up_proj.weight", "lm_head.weight")

    with pytest.raises(ModelError, match="'m' lacks 2 of its weights: lm_head.weight, model.la"):
        load(saved)


def test_only_some_of_many_missing_weights_are_named(saved: Path) -> None:
    layer = "model.layers.0.self_attn"
    drop(saved / "model.safetensors", *(f"{layer}.{name}_proj.weight" for name in "qkvo"))

    with pytest.raises(ModelError, match=r"lacks 4 of its weights: (\S+, ){3}\.\.\."):
        load(saved)


def test_tied_weights_are_not_missed(tmp_path: Path) -> None:
    options = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 48}
    model = new_model(
        "llama",
        **options,
        num_hidden_layers=1,
        num_attention_heads=4,
        tie_word_embeddings=True,
    )
    with model_loading():
        model.save_pretrained(tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")

    loaded = load(tmp_path)
    assert torch.equal(loaded.lm_head.weight, model.model.embed_tokens.weight)
