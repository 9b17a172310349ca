"""The shape of a head's layers: read from its tensors, and from its config what they leave open."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from specrag.drafters.checkpoints.rope import rope_parameters
from specrag.drafters.checkpoints.settings import Settings
from specrag.drafters.checkpoints.target_shape import TargetShape
from specrag.drafters.heads.config import DraftLayerConfig
from specrag.errors import ModelError

_LAYER = re.compile(r"^layers\.(\d+)\.")
_ATTENTION, _MLP = "layers.0.self_attn", "layers.0.mlp"
_USUAL_HEAD_DIMS = (128, 64, 96, 80)
_ACTIVATIONS = ("silu", "swish")
# Layers of these have norms or gates that a Llama's has not.
_FOREIGN_LAYERS = ("gemma", "qwen3_next", "qwen3_5", "gpt_oss", "deepseek")


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What the tensors and the config say about a head's layers.

    Attributes:
        layer: The shape taken.
        num_layers: Their number.
        others: Further shapes that the tensors allow, where the file does not tell how wide an
            attention head is.
    """

    layer: DraftLayerConfig
    num_layers: int
    others: tuple[DraftLayerConfig, ...] = ()


def layer_shape(
    tensors: Mapping[str, torch.Tensor],
    settings: Settings,
    target: TargetShape,
    name: str,
    notes: list[str],
) -> LayerShape:
    """Returns the shape of a head's layers.

    Args:
        tensors: Under the names of ``plain_names``.
        settings: Of the head.
        target: Whose attention heads are a guess where the file says nothing.
        name: Of the head, for messages.
        notes: What was inferred or overruled is added.

    Raises:
        ModelError: A tensor is missing, or the tensors allow no shape.
    """
    _refuse_foreign(settings, name)
    sizes = {
        part: _matrix(tensors, f"{_ATTENTION}.{part}_proj.weight", name) for part in ("q", "k", "o")
    }
    queries, keys, width = sizes["q"][0], sizes["k"][0], sizes["o"][0]
    inner = _matrix(tensors, f"{_MLP}.gate_proj.weight", name)[0]
    shape = DraftLayerConfig(
        hidden_size=width,
        intermediate_size=inner,
        num_heads=1,
        num_kv_heads=1,
        head_dim=1,
        norm_eps=settings.number("rms_norm_eps", 1e-6),
        qkv_bias=f"{_ATTENTION}.q_proj.bias" in tensors,
        output_bias=f"{_ATTENTION}.o_proj.bias" in tensors,
        mlp_bias=f"{_MLP}.gate_proj.bias" in tensors,
        qk_norm=f"{_ATTENTION}.q_norm.weight" in tensors,
        rope=rope_parameters(settings, name),
        max_positions=settings.integer("max_position_embeddings") or 2048,
    )
    dims = _head_dims(tensors, settings, target, queries, keys)
    if not dims:
        raise ModelError(
            f"cannot tell the attention heads of the draft head {name!r}: its queries are "
            f"{queries} wide and its keys {keys}",
            hint="state num_attention_heads and num_key_value_heads in its config.json",
        )
    layers = [_with_heads(shape, queries, keys, dim) for dim in dims]
    _compare(settings, layers[0], _count(tensors), notes)
    declared = settings.integer("num_attention_heads") or settings.integer("head_dim")
    sure = declared or shape.qk_norm or len(layers) == 1
    if not sure:
        notes.append(f"attention heads taken to be {dims[0]} wide: the file does not tell")
    return LayerShape(layers[0], _count(tensors), () if sure else tuple(layers[1:]))


def _count(tensors: Mapping[str, torch.Tensor]) -> int:
    return 1 + max(int(found[1]) for key in tensors if (found := _LAYER.match(key)))


def _matrix(tensors: Mapping[str, torch.Tensor], key: str, name: str) -> tuple[int, int]:
    if key not in tensors:
        raise ModelError(f"the draft head {name!r} lacks {key}", hint="fetch the head again")
    if tensors[key].dim() != 2:
        raise ModelError(
            f"{key} of the draft head {name!r} must be a matrix, its shape is "
            f"{tuple(tensors[key].shape)}",
            hint="quantized heads are not read; use the plain one",
        )
    rows, columns = tensors[key].shape
    return rows, columns


def _head_dims(
    tensors: Mapping[str, torch.Tensor],
    settings: Settings,
    target: TargetShape,
    queries: int,
    keys: int,
) -> list[int]:
    """Widths that an attention head may have, the likeliest first."""
    norm = tensors.get(f"{_ATTENTION}.q_norm.weight")
    heads = settings.integer("num_attention_heads")
    kv_heads = settings.integer("num_key_value_heads")
    asked: Sequence[int | None] = (
        None if norm is None else norm.numel(),
        settings.integer("head_dim"),
        queries // heads if heads and queries % heads == 0 else None,
        keys // kv_heads if kv_heads and keys % kv_heads == 0 else None,
        target.head_dim,
        *_USUAL_HEAD_DIMS,
    )
    wanted = dict.fromkeys(dim for dim in asked if dim)
    return [dim for dim in wanted if _divides(dim, queries, keys)]


def _divides(dim: int, queries: int, keys: int) -> bool:
    # Positions turn pairs, so a head's width is even.
    return not (dim % 2 or queries % dim or keys % dim or (queries // dim) % (keys // dim))


def _with_heads(shape: DraftLayerConfig, queries: int, keys: int, dim: int) -> DraftLayerConfig:
    return replace(shape, head_dim=dim, num_heads=queries // dim, num_kv_heads=keys // dim)


def _compare(
    settings: Settings, layer: DraftLayerConfig, num_layers: int, notes: list[str]
) -> None:
    """Notes what the config says otherwise than the tensors, which are right."""
    found = {
        "hidden_size": layer.hidden_size,
        "intermediate_size": layer.intermediate_size,
        "num_attention_heads": layer.num_heads,
        "num_key_value_heads": layer.num_kv_heads,
        "head_dim": layer.head_dim,
        "num_hidden_layers": num_layers,
    }
    for key, value in found.items():
        said = settings.integer(key)
        if said is not None and said != value:
            notes.append(f"{key} is {value} by the tensors, {said} by config.json")


def _refuse_foreign(settings: Settings, name: str) -> None:
    activation = settings.fields.get("hidden_act", "silu")
    if activation not in _ACTIVATIONS:
        raise ModelError(
            f"the draft head {name!r} has the activation {activation!r}; specrag runs silu",
            hint="use a head with the layers of a Llama, or train one: specrag train eagle",
        )
    if settings.layer_type and settings.layer_type.startswith(_FOREIGN_LAYERS):
        raise ModelError(
            f"the draft head {name!r} has layers of the type {settings.layer_type!r}; specrag runs "
            "those of Llama and Qwen3",
            hint="use a head with the layers of a Llama, or train one: specrag train eagle",
        )
