"""What a sentence-transformers model folder tells without loading the model.

Depends on errors alone; torch is never imported here.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from specrag.errors import ModelError

_CONFIG_NAMES = (
    "config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "sentence_bert_config.json",
    "tokenizer.json",
)
# Training changes nearly every weight, so spread samples tell two models of one shape apart as
# well as all bytes would, in milliseconds instead of seconds for large models.
_NUM_SAMPLES = 64
_SAMPLE_BYTES = 64 * 1024
# Text, configuration and safetensors, but no copies of the weights in other formats.
_HUB_FILES = ["*.json", "*.txt", "*.model", "*.safetensors"]
_HUB_IGNORED = ["onnx/*", "openvino/*"]


class EncoderFolder:
    """Reads the configuration and tokenizer of a model folder.

    Args:
        path: Folder of a sentence-transformers model.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not (path / "config.json").is_file() and not (path / "modules.json").is_file():
            raise ModelError(
                f"no sentence-transformers model in {str(path)!r}: "
                "neither modules.json nor config.json is there",
                hint="give a folder that holds such a model, or a model name",
            )

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer with truncation and padding off; None when there is no tokenizer.json."""
        return self.new_tokenizer() if (self.path / "tokenizer.json").is_file() else None

    def new_tokenizer(self) -> Tokenizer:
        """Returns a tokenizer of one's own to set up, with truncation and padding off.

        Raises:
            ModelError: There is none, or it cannot be read.
        """
        path = self.path / "tokenizer.json"
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing more exact
            raise ModelError(f"cannot read the tokenizer {str(path)!r}: {error}") from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    @cached_property
    def pooling(self) -> str:
        """``mean`` or ``cls`` where the model is a transformer, a pooling and nothing to learn.

        Empty for all others: several poolings, dense layers, prompts, code of their own, models
        for sparse or static vectors, or a folder without fast tokenizer.
        """
        plain = (
            self.dimension is not None
            and self.tokenizer is not None
            and not self.prompts
            and not self._json("config_sentence_transformers.json").get("default_prompt_name")
            and not self._json("sentence_bert_config.json").get("do_lower_case")
            and "auto_map" not in self._transformer_config
            and "max_position_embeddings" in self._transformer_config
        )
        if not plain:
            return ""
        pooling = self._json(f"{self._modules[1]['path']}/config.json")
        known = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
        return next((name for key, name in known.items() if pooling.get(key)), "")

    @property
    def transformer_path(self) -> Path:
        """Folder of the transformer; that of the whole model in most."""
        return self.path / self._modules[0]["path"] if self._modules else self.path

    @cached_property
    def _transformer_config(self) -> dict[str, Any]:
        path = self.transformer_path / "config.json"
        return dict(_read_json(path)) if path.is_file() else {}

    @cached_property
    def prompts(self) -> list[str]:
        """The texts that the model puts before queries or documents."""
        declared = self._json("config_sentence_transformers.json").get("prompts") or {}
        return [prompt for prompt in declared.values() if prompt]

    @cached_property
    def max_sequence_length(self) -> int | None:
        """Most tokens of an input, special tokens and prompt included; None if not declared."""
        declared = self._json("sentence_bert_config.json").get("max_seq_length")
        return declared if isinstance(declared, int) else None

    @cached_property
    def dimension(self) -> int | None:
        """Length of the vectors; None when it is not plain from the configuration."""
        types = [module["type"].rsplit(".", 1)[-1] for module in self._modules]
        truncated = self._json("config_sentence_transformers.json").get("truncate_dim")
        if types[:2] != ["Transformer", "Pooling"] or set(types[2:]) - {"Normalize"} or truncated:
            return None
        pooling = self._json(f"{self._modules[1]['path']}/config.json")
        modes = [key for key, value in pooling.items() if key.startswith("pooling_mode") and value]
        dimension = pooling.get("word_embedding_dimension")
        # Several poolings at once are concatenated, which makes the vectors longer.
        return dimension if isinstance(dimension, int) and len(modes) == 1 else None

    @cached_property
    def fingerprint(self) -> str:
        """A digest of what changes the vectors: configuration, tokenizer and weights."""
        digest = hashlib.sha256()
        for module in ["", *sorted(module["path"] for module in self._modules if module["path"])]:
            for path in _relevant_files(self.path / module):
                digest.update(f"{module}/{path.name}\0{path.stat().st_size}\0".encode())
                _update_with_samples(digest, path)
        return f"sha256:{digest.hexdigest()[:32]}"

    @cached_property
    def _modules(self) -> list[dict[str, str]]:
        path = self.path / "modules.json"
        return list(_read_json(path)) if path.is_file() else []

    def _json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        return dict(_read_json(path)) if path.is_file() else {}


def find_encoder_folder(path_or_name: str) -> EncoderFolder:
    """Finds a model on disk, or fetches it from the model hub once.

    Args:
        path_or_name: A folder, or a name on the hub such as ``BAAI/bge-small-en-v1.5``.

    Raises:
        ModelError: There is no such folder, and the hub has no such model or cannot be reached.
    """
    path = Path(path_or_name).expanduser()
    if path.is_dir():
        return EncoderFolder(path)
    try:
        return EncoderFolder(_fetch(path_or_name))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"cannot find the encoder {path_or_name!r}: no such folder, and not fetched from the "
            f"model hub ({type(error).__name__}: {error})",
            hint="give the folder of a sentence-transformers model, or go online and try again",
        ) from error


def _fetch(name: str) -> Path:
    # Imported here because a folder on disk, the usual case, does not need it.
    from huggingface_hub import snapshot_download

    folder = Path(snapshot_download(name, allow_patterns=_HUB_FILES, ignore_patterns=_HUB_IGNORED))
    if not any(folder.rglob("*.safetensors")):
        snapshot_download(name, allow_patterns=["*.bin"], ignore_patterns=_HUB_IGNORED)
    return folder


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{str(path)!r} is not valid JSON: {error}") from error


def _relevant_files(folder: Path) -> list[Path]:
    configs = [folder / name for name in _CONFIG_NAMES if (folder / name).is_file()]
    weights = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
    return configs + weights


def _update_with_samples(digest: hashlib._Hash, path: Path) -> None:
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= _NUM_SAMPLES * _SAMPLE_BYTES:
            digest.update(file.read())
            return
        for number in range(_NUM_SAMPLES):
            file.seek(number * (size - _SAMPLE_BYTES) // (_NUM_SAMPLES - 1))
            digest.update(file.read(_SAMPLE_BYTES))
