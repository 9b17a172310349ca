from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from specrag.errors import ModelError
from specrag.retrieval import encoder_folder
from specrag.retrieval.encoder_folder import EncoderFolder, find_encoder_folder

POOLING = {"word_embedding_dimension": 12, "pooling_mode_mean_tokens": True}


def modules(*kinds: str) -> list[dict[str, str]]:
    paths = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds[1:], start=1))]
    return [
        {"path": path, "type": f"sentence_transformers.models.{kind}"}
        for path, kind in zip(paths, kinds, strict=True)
    ]


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    write(folder / "config.json", {"hidden_size": 12})
    write(folder / "modules.json", modules("Transformer", "Pooling", "Normalize"))
    write(folder / "1_Pooling" / "config.json", POOLING)
    write(folder / "sentence_bert_config.json", {"max_seq_length": 256})
    (folder / "model.safetensors").write_bytes(bytes(1000))
    return folder


def test_sizes_are_read_from_the_configuration(folder: Path) -> None:
    model = EncoderFolder(folder)
    assert (model.dimension, model.max_sequence_length, model.prompts) == (12, 256, [])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("modules.json", modules("Transformer", "Pooling", "Dense")),
        ("modules.json", modules("StaticEmbedding")),
        ("1_Pooling/config.json", {**POOLING, "pooling_mode_max_tokens": True}),
        ("config_sentence_transformers.json", {"truncate_dim": 4}),
    ],
)
def test_a_dimension_that_is_not_plain_is_left_open(folder: Path, name: str, content: Any) -> None:
    write(folder / name, content)
    assert EncoderFolder(folder).dimension is None


def test_what_is_not_declared_is_left_open(tmp_path: Path) -> None:
    write(tmp_path / "config.json", {})
    model = EncoderFolder(tmp_path)
    assert (model.dimension, model.max_sequence_length, model.tokenizer) == (None, None, None)


def test_the_fingerprint_does_not_depend_on_the_place(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy" / "README.md").write_text("more")
    assert EncoderFolder(tmp_path / "copy").fingerprint == EncoderFolder(folder).fingerprint


@pytest.mark.parametrize(
    "name",
    ["config.json", "modules.json", "1_Pooling/config.json", "sentence_bert_config.json"],
)
def test_the_fingerprint_changes_with_the_configuration(folder: Path, name: str) -> None:
    before = EncoderFolder(folder).fingerprint
    with (folder / name).open("a") as file:
        file.write(" ")
    assert EncoderFolder(folder).fingerprint != before


@pytest.mark.parametrize("place", [0, 500, 999])
def test_the_fingerprint_changes_with_the_weights(folder: Path, place: int) -> None:
    before = EncoderFolder(folder).fingerprint
    data = bytearray(1000)
    data[place] = 1
    (folder / "model.safetensors").write_bytes(data)
    assert EncoderFolder(folder).fingerprint != before


def test_large_weights_are_sampled_from_end_to_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoder_folder, "_NUM_SAMPLES", 3)
    monkeypatch.setattr(encoder_folder, "_SAMPLE_BYTES", 10)

    def fingerprint(place: int | None, size: int = 1000) -> str:
        data = bytearray(size)
        if place is not None:
            data[place] = 1
        (folder / "model.safetensors").write_bytes(data)
        return EncoderFolder(folder).fingerprint

    sampled = {fingerprint(place) for place in (None, 0, 9, 495, 504, 990, 999)}
    assert len(sampled) == 7
    assert fingerprint(None, size=1001) not in sampled
    assert fingerprint(100) == fingerprint(None)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no sentence-transformers model in") as caught:
        find_encoder_folder(str(tmp_path))
    assert caught.value.hint


def test_damaged_configuration_is_refused(folder: Path) -> None:
    (folder / "modules.json").write_text("{")
    with pytest.raises(ModelError, match="modules.json' is not valid JSON"):
        _ = EncoderFolder(folder).dimension


def test_a_damaged_tokenizer_is_refused(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot read the tokenizer"):
        _ = EncoderFolder(folder).tokenizer


def test_a_name_is_fetched_once_without_copies_of_the_weights(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, list[str]]] = []

    def fetch(name: str, *, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    assert find_encoder_folder("someone/model").path == folder
    (folder / "model.safetensors").unlink()
    find_encoder_folder("someone/model")
    with_safetensors, first, second = asked
    assert with_safetensors == first
    assert "*.bin" not in first[1]
    assert second == ("someone/model", ["*.bin"])


@pytest.mark.parametrize("error", [FileNotFoundError("offline"), ValueError("bad name")])
def test_a_name_that_cannot_be_fetched_is_reported(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*args: object, **kwargs: object) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ModelError, match=f"cannot find the encoder 'someone/model'.*{error}"):
        find_encoder_folder("someone/model")
