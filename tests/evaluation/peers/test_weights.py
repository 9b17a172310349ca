"""The weights that engines read: which a model has, and the same values as floats."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from specrag.errors import ConfigError
from specrag.evaluation.peers.weights import (
    float16_of,
    float32_of,
    folder_of,
    gguf_of,
    precision_of,
)
from specrag.models.embedded import resolve

KINDS = [gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.Q8_0]


def quantised(path: Path) -> dict[str, np.ndarray]:
    """Writes a GGUF file; returns the values that it stands for."""
    generator = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("general.name", "a model")
    writer.add_array("tokenizer.ggml.tokens", ["a", "é", "</s>"])
    writer.add_array("tokenizer.ggml.scores", [0.5, 1.0, -1.0])
    writer.add_uint32("llama.block_count", 7)
    writer.add_file_type(int(gguf.LlamaFileType.MOSTLY_Q4_1))
    values = {}
    for kind in KINDS:
        exact = generator.normal(size=(4, 64)).astype(np.float32)
        packed = gguf.quants.quantize(exact, kind)
        values[kind.name] = gguf.quants.dequantize(packed, kind)
        writer.add_tensor(kind.name, packed, raw_dtype=kind)
    values["norm"] = (1 + generator.normal(size=64) / 3).astype(np.float32)
    writer.add_tensor("norm", values["norm"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


@pytest.mark.usefixtures("isolated_home")
def test_a_file_is_written_again_as_floats(tmp_path: Path) -> None:
    source = tmp_path / "small.gguf"
    values = quantised(source)
    for made, dtype, kind in (
        (float32_of(source), np.float32, "F32"),
        (float16_of(source), np.float16, "F16"),
    ):
        reader = gguf.GGUFReader(made)
        found = {tensor.name: tensor.data for tensor in reader.tensors}
        assert found.keys() == values.keys()
        for name, array in values.items():
            wanted = array if array.ndim == 1 else array.astype(dtype)
            assert found[name].dtype == wanted.dtype
            assert found[name].shape == wanted.shape
            assert np.array_equal(found[name], wanted)
        before = {name: each.contents() for name, each in gguf.GGUFReader(source).fields.items()}
        after = {name: each.contents() for name, each in reader.fields.items()}
        changed = {name for name in before if before[name] != after.get(name)}
        assert {name for name in changed if not name.startswith("GGUF.")} == {"general.file_type"}
        assert precision_of(made) == kind
    assert precision_of(source) == "Q4_1"
    assert precision_of(str(tmp_path)) == "float32"


@pytest.mark.usefixtures("isolated_home")
def test_it_is_written_once_and_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "small.gguf"
    quantised(source)

    def broken(*arguments: object) -> None:
        raise RuntimeError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(gguf.GGUFWriter, "write_tensors_to_file", broken)
        with pytest.raises(RuntimeError, match="the disk is full"):
            float32_of(source)
    place = tmp_path / "home" / "peers" / "weights"
    assert list(place.iterdir()) == []
    made = float32_of(source)
    assert [path.name for path in made.parent.iterdir()] == [made.name]
    stamp = made.stat().st_mtime_ns
    assert float32_of(source) == made
    assert made.stat().st_mtime_ns == stamp


def test_weights_that_an_engine_cannot_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs a GGUF file"):
        gguf_of(str(tmp_path))
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(ConfigError, match="reads no GGUF"):
        folder_of(str(tmp_path / "model.gguf"))


@pytest.mark.embedded
def test_the_folder_is_what_our_engine_decodes_with(embedded_target_path: Path) -> None:
    assert folder_of("smollm2-135m-instruct") == resolve("smollm2-135m-instruct").path
    assert Path(folder_of("smollm2-135m-instruct")) == embedded_target_path
