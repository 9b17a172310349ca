"""HeadFiles: what lies in the file, the folder or the hub repository of a draft head."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from safetensors import SafetensorError, safe_open

from specrag.errors import ModelError
from specrag.loading import model_loading
from specrag.models.tokenizer import first_line

_CONFIG = "config.json"
_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth")
_PREFERRED = ("medusa_lm_head", "model", "pytorch_model")
_WRAPPERS = ("state_dict", "model_state_dict", "module")
_HINT = "give a folder, a .safetensors, .bin or .pt file, or a hub name such as organisation/head"


@dataclass(frozen=True, slots=True)
class HeadFiles:
    """The content of a draft head's files, as it is written there.

    Attributes:
        name: What users call it.
        config: The content of ``config.json``; empty where there is none.
        tensors: By their names in the file, mapped into memory where the format allows.
    """

    name: str
    config: Mapping[str, Any]
    tensors: Mapping[str, torch.Tensor]


def read_head_files(name_or_path: str) -> HeadFiles:
    """Finds a draft head and reads its files; no code of theirs runs.

    A folder or a file on this machine wins over a repository of the hub, which is fetched once
    and, with ``HF_HUB_OFFLINE=1``, only looked for in its cache. ``.safetensors`` files win over
    ``.bin`` and ``.pt`` files, which may hold tensors and nothing else.

    Args:
        name_or_path: A folder, a file or a hub name.

    Raises:
        ModelError: There is no such head, or its files cannot be read safely.
    """
    text = name_or_path.strip()
    place = _place(text)
    folder = place if place.is_dir() else place.parent
    files = _weight_files(folder, text) if place.is_dir() else [place]
    tensors: dict[str, torch.Tensor] = {}
    for file in files:
        found = _read_weights(file)
        if twice := sorted(tensors.keys() & found.keys()):
            raise ModelError(
                f"several files of the draft head {text!r} hold {twice[0]!r}",
                hint="name the one file that is meant",
            )
        tensors.update(found)
    if not tensors:
        raise ModelError(f"the files of the draft head {text!r} hold no tensors", hint=_HINT)
    return HeadFiles(text, _read_config(folder / _CONFIG), tensors)


def local_head(name_or_path: str) -> Path | None:
    """Returns where a head lies on this machine, without reading it.

    Args:
        name_or_path: A folder, a file or a hub name.

    Returns:
        None for what can only be a hub name.

    Raises:
        ModelError: It is a path, and nothing is there.
    """
    text = name_or_path.strip()
    try:
        path = Path(text).expanduser()
        if text and path.exists():
            return path
    except (OSError, RuntimeError, ValueError):  # too long, ~ of an unknown user, a zero byte
        pass
    if not text or text.startswith((".", "~", "/")) or text.count("/") != 1 or "\\" in text:
        raise ModelError(f"no draft head at {text!r}", hint=_HINT)
    return None


def _place(text: str) -> Path:
    """The folder or file of a head, fetched where it is a hub name."""
    if (path := local_head(text)) is not None:
        return path
    try:
        with model_loading():
            folder = Path(snapshot_download(text, allow_patterns=["*.json", "*.safetensors"]))
            if not any(folder.glob("*.safetensors")):
                snapshot_download(text, allow_patterns=["*.bin", "*.pt"])
    except (OSError, ValueError) as error:
        raise ModelError(
            f"cannot find the draft head {text!r}: no such folder, and not fetched from the model "
            f"hub ({type(error).__name__}: {first_line(error)})",
            hint=_HINT,
        ) from error
    return folder


def _weight_files(folder: Path, name: str) -> list[Path]:
    """The files of a folder that hold the head, shards in the order of their index."""
    for suffix in _SUFFIXES:
        index = next(iter(sorted(folder.glob(f"*{suffix}.index.json"))), None)
        if index is not None:
            return _shards(index)
        found = sorted(folder.glob(f"*{suffix}"))
        # Settings of a trainer lie beside the weights, and hold no tensors.
        found = [file for file in found if not file.stem.startswith(("training_args", "optimizer"))]
        for preferred in _PREFERRED:
            if chosen := [file for file in found if file.stem == preferred]:
                return chosen
        if found:
            return found
    raise ModelError(
        f"the folder of the draft head {name!r} holds no weights ({', '.join(_SUFFIXES)})",
        hint=_HINT,
    )


def _shards(index: Path) -> list[Path]:
    places = _read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise ModelError(f"{str(index)!r} names no weights", hint="fetch the head again")
    files = []
    for name in dict.fromkeys(places.values()):
        # A plain name only: the index must not lead out of its folder.
        if not isinstance(name, str) or Path(name).name != name:
            raise ModelError(f"{str(index)!r} names a file outside its folder: {name!r}")
        if not (index.parent / name).is_file():
            raise ModelError(
                f"{str(index)!r} names {name!r}, which is missing", hint="fetch the head again"
            )
        files.append(index.parent / name)
    return files


def _read_config(path: Path) -> Mapping[str, Any]:
    return _read_json(path) if path.is_file() else {}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{str(path)!r} cannot be read as JSON: {first_line(error)}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{str(path)!r} holds no JSON object, but {type(content).__name__}")
    return content


def _read_weights(path: Path) -> Mapping[str, torch.Tensor]:
    try:
        if path.suffix == ".safetensors":
            return _read_safetensors(path)
        if path.suffix in _SUFFIXES:
            return _only_tensors(_read_pickled(path), path)
    except pickle.UnpicklingError as error:
        raise ModelError(
            f"{str(path)!r} holds more than tensors, and is not read: to read it would run code "
            "that it brings along",
            hint="convert it to .safetensors where you trust it",
        ) from error
    except (OSError, RuntimeError, ValueError, EOFError, SafetensorError) as error:
        raise ModelError(
            f"cannot read the weights {str(path)!r}: {first_line(error)}",
            hint="the file may be damaged; fetch it again",
        ) from error
    raise ModelError(f"{str(path)!r} is no file of weights", hint=_HINT)


def _read_safetensors(path: Path) -> Mapping[str, torch.Tensor]:
    with safe_open(str(path), framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping


def _read_pickled(path: Path) -> Any:
    options: dict[str, Any] = {"map_location": "cpu", "weights_only": True}
    try:
        return torch.load(path, mmap=True, **options)
    except RuntimeError as error:
        # Files from before torch 1.6 are no archives and cannot be mapped.
        if "mmap" not in str(error):
            raise
        return torch.load(path, **options)


def _only_tensors(content: Any, path: Path) -> Mapping[str, torch.Tensor]:
    for wrapper in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping):
        raise ModelError(f"{str(path)!r} holds {type(content).__name__} in place of named tensors")
    for name, tensor in content.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise ModelError(
                f"{str(path)!r} holds {type(tensor).__name__} under {name!r} in place of a tensor",
                hint="save the head's state_dict alone",
            )
    return dict(content)
