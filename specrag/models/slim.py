"""Slim models: a few layers between the embeddings and the LM head of a larger model."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from specrag.errors import ModelError
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.lean_target import LeanTarget
from specrag.models.target import TargetModel
from specrag.models.transformers_target import TransformersTarget
from specrag.models.trimmed_head import TrimmedHead

SLIM = "slim.json"
_WEIGHTS = "model.safetensors"
_TOKENS = "draft_token_ids"


def slim_model(target: TransformersTarget, num_layers: int, token_ids: torch.Tensor) -> Any:
    """Returns a causal LM of the target's kind with fewer layers, whose weights are unset.

    It reads the target's own embeddings and LM head, which are the greater part of a small model.

    Args:
        target: A transformers model.
        num_layers: Layers to have.
        token_ids: Tokens that it can say, ``[draft vocab]``.

    Raises:
        ModelError: The target has fewer layers.
    """
    have = len(target.decoder_layers)
    if not 1 <= num_layers <= have:
        raise ModelError(f"a slim {target.name} has 1 to {have} layers, got {num_layers}")
    config = copy.deepcopy(target.model.config)
    text = config.get_text_config()
    text.num_hidden_layers = num_layers
    if getattr(text, "layer_types", None):
        text.layer_types = list(text.layer_types)[:num_layers]
    head = target.model.get_output_embeddings()
    with torch.device("meta"):
        slim = type(target.model)(config)
    slim.set_input_embeddings(target.model.get_input_embeddings())
    slim.set_output_embeddings(TrimmedHead(head.weight, token_ids, head.bias))
    rotary = getattr(slim.get_decoder(), "rotary_emb", None)
    if rotary is not None:  # computed and not learned, so the target's is as good
        slim.get_decoder().rotary_emb = target.model.get_decoder().rotary_emb
    slim.generation_config = target.model.generation_config
    return slim


def own_weights(slim: Any) -> dict[str, torch.Tensor]:
    """Returns what learns and is not the target's: the layers and what stands around them.

    Args:
        slim: Of ``slim_model``.
    """
    embedding = slim.get_input_embeddings().weight
    return {
        name: parameter for name, parameter in slim.named_parameters() if parameter is not embedding
    }


def copied_layers(
    target: TransformersTarget,
    slim: Any,
    layers: Sequence[int],
    dtype: torch.dtype | None = None,
) -> None:
    """Fills a slim model with layers of its target, and with what stands around them.

    Args:
        target: The target.
        slim: Of ``slim_model``.
        layers: The target's layer for each of its own.
        dtype: Of the copies; None keeps the target's.

    Raises:
        ModelError: The target's layers are not alike.
    """
    decoder, theirs = slim.get_decoder(), target.model.get_decoder()
    stack = f"{_name_of(theirs, target.decoder_layers)}."
    shared = {f"{_name_of(theirs, target.model.get_input_embeddings())}.weight"}
    around = {
        name: value
        for name, value in theirs.state_dict().items()
        if not name.startswith(stack) and name not in shared
    }
    decoder.load_state_dict(_copies(around, dtype), strict=False, assign=True)
    for ours, number in zip(TransformersTarget.layers_of(slim), layers, strict=True):
        known = target.decoder_layers[number].state_dict()
        needed = {name: value.shape for name, value in ours.state_dict().items()}
        if needed != {name: value.shape for name, value in known.items()}:
            raise ModelError(
                f"layer {number} of {target.name} is of another kind than those of a slim model",
                hint="train a head instead: specrag train eagle",
            )
        ours.load_state_dict(_copies(known, dtype), assign=True)


def save_slim(folder: Path, slim: Any, target: TransformersTarget, dtype: torch.dtype) -> None:
    """Writes a slim model without what it shares.

    Args:
        folder: Is made where it is missing.
        slim: Of ``slim_model``, with weights.
        target: What it was made for.
        dtype: Of the weights.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: p.detach().to(dtype).contiguous() for name, p in own_weights(slim).items()}
    tensors.update(_own_buffers(slim))
    tensors[_TOKENS] = slim.get_output_embeddings().token_ids
    save_file(tensors, folder / _WEIGHTS, metadata={"format": "pt"})
    layers = int(slim.config.get_text_config().num_hidden_layers)
    content = {"num_layers": layers, "target": target.name, "fingerprint": target.fingerprint}
    (folder / SLIM).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    slim.config.save_pretrained(folder)  # by which a folder of a model is told from any other


def load_slim(folder: Path, target: TargetModel) -> HuggingFaceTarget:
    """Loads a slim model beside its target, packed if the target is packed.

    Args:
        folder: Of ``save_slim``.
        target: The target that it was made for.

    Raises:
        ModelError: It was made for another one, or is damaged.
    """
    if not isinstance(target, TransformersTarget):
        raise ModelError(f"{target.name} has no layers that a slim model could stand beside")
    try:
        content = json.loads((folder / SLIM).read_text(encoding="utf-8"))
        made_for, name, num_layers = (content[k] for k in ("fingerprint", "target", "num_layers"))
        tensors = load_file(folder / _WEIGHTS)
        token_ids = tensors.pop(_TOKENS)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise ModelError(f"cannot read the slim model in {folder}: {error}") from error
    if made_for != target.fingerprint:
        raise ModelError(
            f"the slim model in {folder} was made for {name}, with other weights than "
            f"{target.name} has",
            hint="train one for this target: specrag train distill",
        )
    if not isinstance(num_layers, int):
        raise ModelError(f"the slim model in {folder} is damaged: it has {num_layers!r} layers")
    slim = slim_model(target, num_layers, token_ids)
    weights, buffers = own_weights(slim), _own_buffers(slim)
    needed = {name: value.shape for name, value in (weights | buffers).items()}
    there = {name: value.shape for name, value in tensors.items()}
    for name in sorted({*needed, *there}):
        if needed.get(name) != there.get(name):
            raise ModelError(f"the slim model in {folder} is damaged: {name}")
    states = {
        name: value.to(target.device, target.dtype if name in weights else None)
        for name, value in tensors.items()
    }
    slim.load_state_dict(states, strict=False, assign=True)
    name = f"slim {target.name}"
    if target.quantization != "none":
        return LeanTarget(slim, name, target.quantization)
    return HuggingFaceTarget(slim, name)


def _own_buffers(slim: Any) -> dict[str, torch.Tensor]:
    """What is kept beside the weights and does not learn, such as biases of routers."""
    parameters = {name for name, _ in slim.named_parameters(remove_duplicate=False)}
    return {name: value for name, value in slim.state_dict().items() if name not in parameters}


def _name_of(whole: Any, part: Any) -> str:
    found: str = next(name for name, module in whole.named_modules() if module is part)
    return found


def _copies(
    tensors: Mapping[str, torch.Tensor], dtype: torch.dtype | None
) -> dict[str, torch.Tensor]:
    return {
        name: value.to(dtype if value.is_floating_point() else None, copy=True)
        for name, value in tensors.items()
    }
