"""Writing a draft head as the folder that public engines read: config.json and safetensors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from specrag.drafters.checkpoints.checkpoint import DraftHead
from specrag.drafters.heads.config import DraftLayerConfig, Eagle3Config, EagleConfig
from specrag.drafters.heads.eagle import EagleHead
from specrag.drafters.heads.eagle3 import Eagle3Head
from specrag.drafters.heads.medusa import MedusaConfig
from specrag.errors import ConfigError
from specrag.models.target import FINAL_NORM

CONFIG, WEIGHTS = "config.json", "model.safetensors"
_EAGLE3_NAMES = (
    (re.compile(r"^layers\.0\."), "midlayer."),
    (re.compile(r"^(input_layernorm|hidden_norm)\."), r"midlayer.\1."),
)
_LATER_NORM = re.compile(r"^input_layernorms\.(\d+)\.")
_FIRST_BLOCK = re.compile(r"^(\d+)\.0\.linear\.")
_MEDUSA_BLOCK = re.compile(r"^heads\.(\d+)\.(\d+)\.linear\.")


def write_head(
    folder: Path,
    head: DraftHead,
    token_ids: torch.Tensor | None = None,
    *,
    lm_rows: torch.Tensor | None = None,
    dtype: torch.dtype = torch.bfloat16,
) -> None:
    """Writes a head in the format of its authors, which ``read_checkpoint`` reads back.

    Args:
        folder: Is made where it is missing; files of the same names are replaced.
        head: Any.
        token_ids: ``[draft vocab]`` tokens that it can say, in ascending order; None for all.
        lm_rows: ``[draft vocab, hidden]`` of the target's LM head, for an EAGLE-3 head that reads
            it: other engines want the head to bring its own.
        dtype: Of the weights.

    Raises:
        ConfigError: The head reads what the format has no number for.
    """
    config = head.config
    fields = _fields(head, token_ids)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {_file_name(name, config): value for name, value in head.state_dict().items()}
    if isinstance(config, MedusaConfig) and config.shared_layers:
        tensors |= _repeated(tensors, config.num_layers)
    written = {name: value.detach().to(dtype).contiguous() for name, value in tensors.items()}
    if lm_rows is not None:
        written["lm_head.weight"] = lm_rows.detach().to(dtype).contiguous()
    if token_ids is not None:
        is_medusa = isinstance(config, MedusaConfig)
        tables = {"token_map": token_ids} if is_medusa else _tables(token_ids, config.vocab_size)
        written.update({name: table.cpu() for name, table in tables.items()})
    save_file(written, folder / WEIGHTS, metadata={"format": "pt"})
    text = json.dumps({**fields, "torch_dtype": str(dtype).removeprefix("torch.")}, indent=2)
    (folder / CONFIG).write_text(text + "\n", encoding="utf-8")


def _tables(token_ids: torch.Tensor, vocab_size: int) -> dict[str, torch.Tensor]:
    named = torch.zeros(vocab_size, dtype=torch.bool, device=token_ids.device)
    named[token_ids] = True
    offsets = token_ids - torch.arange(len(token_ids), device=token_ids.device)
    return {"d2t": offsets, "t2d": named}


def _file_name(name: str, config: EagleConfig | Eagle3Config | MedusaConfig) -> str:
    if isinstance(config, MedusaConfig):
        name = _MEDUSA_BLOCK.sub(r"\1.\2.linear.", name)
        return re.sub(r"^lm_heads\.(\d+)\.", rf"\1.{config.num_layers}.", name)
    if isinstance(config, Eagle3Config):
        for pattern, new in _EAGLE3_NAMES:
            name = pattern.sub(new, name)
    return _LATER_NORM.sub(lambda found: f"layers.{int(found[1]) + 1}.input_layernorm.", name)


def _repeated(tensors: Mapping[str, torch.Tensor], times: int) -> dict[str, torch.Tensor]:
    """A block that a state goes through several times, under each of its numbers."""
    return {
        _FIRST_BLOCK.sub(rf"\1.{number}.linear.", name): value.clone()
        for name, value in tensors.items()
        if _FIRST_BLOCK.match(name)
        for number in range(1, times)
    }


def _fields(head: DraftHead, token_ids: torch.Tensor | None) -> dict[str, Any]:
    config = head.config
    if isinstance(config, MedusaConfig):
        return {
            "architectures": ["MedusaModel"],
            "medusa_num_heads": config.num_heads,
            "medusa_num_layers": config.num_layers,
            "hidden_size": config.hidden_size,
            "vocab_size": config.vocab_size,
        }
    fields = {
        **_layer_fields(config.layer),
        "num_hidden_layers": config.num_layers,
        "vocab_size": config.vocab_size,
    }
    if isinstance(head, EagleHead):
        return {"architectures": ["LlamaForCausalLMEagle"], **fields, "bias": head.config.fc_bias}
    assert isinstance(head, Eagle3Head), "there is no further kind of head"
    if FINAL_NORM in head.config.feature_layers:
        raise ConfigError(
            f"a head that reads the layers {head.config.feature_layers} cannot be written: the "
            f"files of EAGLE-3 have no number for {FINAL_NORM}, the states behind the final norm",
            hint="train it on outputs of layers",
        )
    draft_vocab = len(token_ids) if token_ids is not None else head.config.draft_vocab_size
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        **fields,
        "draft_vocab_size": draft_vocab,
        "target_hidden_size": head.config.target_hidden_size,
        # Numbers of the states that enter a layer, which is how most engines count.
        "eagle_aux_hidden_state_layer_ids": [n + 1 for n in head.config.feature_layers],
        "norm_before_residual": head.config.norm_before_residual,
        "norm_before_fc": head.config.norm_before_fc,
        "fc_norm": head.config.fc_norm,
        "norm_output": head.config.norm_output,
        "tie_word_embeddings": False,
    }


def _layer_fields(layer: DraftLayerConfig) -> Mapping[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": layer.hidden_size,
        "intermediate_size": layer.intermediate_size,
        "num_attention_heads": layer.num_heads,
        "num_key_value_heads": layer.num_kv_heads,
        "head_dim": layer.head_dim,
        "rms_norm_eps": layer.norm_eps,
        "attention_bias": layer.qkv_bias,
        "qkv_bias": layer.qkv_bias,
        "mlp_bias": layer.mlp_bias,
        "hidden_act": "silu",
        "rope_parameters": dict(layer.rope),
        # As engines before transformers 5 read it.
        "rope_theta": layer.rope.get("rope_theta"),
        "rope_scaling": _rope_scaling(layer.rope),
        "max_position_embeddings": layer.max_positions,
    }


def _rope_scaling(rope: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if rope["rope_type"] == "default":
        return None
    return {key: value for key, value in rope.items() if key != "rope_theta"}
