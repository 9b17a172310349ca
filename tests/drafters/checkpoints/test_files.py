"""HeadFiles: folders, files, shards, old formats, and what is refused."""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from specrag.drafters.checkpoints.files import read_head_files
from specrag.errors import ModelError

TENSORS = {"fc.weight": torch.arange(6.0).view(2, 3), "d2t": torch.tensor([0, 4])}
CONFIG = {"hidden_size": 2}


class Opened:
    """Says that it was unpickled."""

    ran = False

    def __reduce__(self) -> Any:
        return (setattr, (Opened, "ran", True))


def same(name_or_path: Path, config: dict[str, Any] | None = None) -> None:
    found = read_head_files(str(name_or_path))
    assert found.config == (CONFIG if config is None else config)
    assert found.tensors.keys() == TENSORS.keys()
    assert all(torch.equal(found.tensors[key], value) for key, value in TENSORS.items())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return tmp_path


def test_safetensors_in_a_folder_and_as_a_file(folder: Path) -> None:
    save_file(TENSORS, folder / "model.safetensors")
    same(folder)
    same(folder / "model.safetensors")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "medusa_lm_head.pt", "head.pth"])
@pytest.mark.parametrize("archive", [True, False])
def test_pickled_tensors_of_both_eras(folder: Path, name: str, archive: bool) -> None:
    torch.save(OrderedDict(TENSORS), folder / name, _use_new_zipfile_serialization=archive)
    same(folder)
    same(folder / name)


def test_tensors_inside_a_training_state(folder: Path) -> None:
    torch.save({"state_dict": TENSORS, "step": 7}, folder / "pytorch_model.bin")
    same(folder)


def test_a_missing_config_is_allowed(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "model.safetensors")
    same(tmp_path, config={})


@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_shards(folder: Path, suffix: str) -> None:
    places = {}
    for number, (key, value) in enumerate(TENSORS.items()):
        name = f"shard-{number}.{suffix}"
        places[key] = name
        if suffix == "bin":
            torch.save({key: value}, folder / name)
        else:
            save_file({key: value}, folder / name)
    (folder / f"model.{suffix}.index.json").write_text(json.dumps({"weight_map": places}))
    same(folder)


def test_safetensors_win_over_pickled_ones(folder: Path) -> None:
    save_file(TENSORS, folder / "model.safetensors")
    torch.save({"other": torch.ones(1)}, folder / "pytorch_model.bin")
    same(folder)


def test_the_file_of_the_head_wins_over_others(folder: Path) -> None:
    save_file({"other": torch.ones(1)}, folder / "base.safetensors")
    save_file(TENSORS, folder / "medusa_lm_head.safetensors")
    same(folder)


def test_a_trainer_s_settings_are_no_weights(folder: Path) -> None:
    torch.save({"lr": Opened()}, folder / "training_args.bin")
    torch.save(TENSORS, folder / "head.bin")
    same(folder)
    assert not Opened.ran


def test_a_file_that_would_run_code_is_refused(folder: Path) -> None:
    torch.save({"fc.weight": torch.ones(1), "more": Opened()}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="more than tensors"):
        read_head_files(str(folder))
    assert not Opened.ran


def test_a_hub_name_is_looked_for_in_the_cache_only(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot find the draft head 'someone/eagle'.*hub"):
        read_head_files("someone/eagle")


@pytest.mark.parametrize(
    "name", ["", "  ", "no-such", "/no/such", "./no", "~nobody/x", "a/b/c", "x" * 5000, "a\0b"]
)
def test_what_is_neither_a_place_nor_a_hub_name(name: str) -> None:
    with pytest.raises(ModelError, match="no draft head at"):
        read_head_files(name)


def test_an_empty_folder(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no weights \(\.safetensors, \.bin"):
        read_head_files(str(folder))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", b"\x08"),
        ("model.safetensors", b"\xff" * 64),
        ("pytorch_model.bin", b""),
        ("pytorch_model.bin", b"PK\x03\x04 and no more"),
        ("pytorch_model.bin", b"plain text"),
    ],
)
def test_a_damaged_file(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(ModelError, match=name):
        read_head_files(str(folder))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([1, 2], "holds list in place of named tensors"),
        ({"fc.weight": torch.ones(1), "step": 3}, "int under 'step'"),
        ({3: torch.ones(1)}, "under 3"),
        ({}, "hold no tensors"),
    ],
)
def test_a_pickled_file_of_something_else(folder: Path, content: object, said: str) -> None:
    torch.save(content, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=said):
        read_head_files(str(folder))


def test_a_file_of_no_weights(folder: Path) -> None:
    with pytest.raises(ModelError, match="no file of weights"):
        read_head_files(str(folder / "config.json"))


def test_two_files_with_the_same_tensor(folder: Path) -> None:
    for name in "ab":
        save_file(TENSORS, folder / f"{name}.safetensors")
    with pytest.raises(ModelError, match="several files"):
        read_head_files(str(folder))


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ({"weight_map": {"x": "../other.safetensors"}}, "outside its folder"),
        ({"weight_map": {"x": "missing.safetensors"}}, "missing"),
        ({"weight_map": {"x": 3}}, "outside"),
        ({"weight_map": {}}, "names no weights"),
        ({}, "names no weights"),
        ([], "no JSON object"),
    ],
)
def test_an_index_that_leads_nowhere(folder: Path, index: object, said: str) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(ModelError, match=said):
        read_head_files(str(folder))


@pytest.mark.parametrize("text", ["{", "[]", "\xff"])
def test_a_config_that_is_none(folder: Path, text: str) -> None:
    save_file(TENSORS, folder / "model.safetensors")
    (folder / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(ModelError, match=r"config\.json"):
        read_head_files(str(folder))
