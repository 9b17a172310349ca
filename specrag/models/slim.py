"""Slim models: a few layers between the embeddings and the LM head of a larger model."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

from specrag.errors import ModelError
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.target import TargetModel
from specrag.models.transformers_target import TransformersTarget

SLIM = "slim.json"
_WEIGHTS = "model.safetensors"
_TOKENS = "draft_token_ids"


class TrimmedHead(nn.Module):
    """An LM head that computes some tokens and calls the others impossible.

    Args:
        weight: ``[vocab, hidden]`` of a whole LM head.
        token_ids: The tokens to compute, ``[draft vocab]``.
        bias: ``[vocab]``, if it has one.
    """

    def __init__(
        self, weight: torch.Tensor, token_ids: torch.Tensor, bias: torch.Tensor | None = None
    ) -> None:
        super().__init__()
        self.token_ids = token_ids.to(weight.device)
        self._vocab_size = len(weight)
        self.rows = weight.detach()[self.token_ids]
        self._bias = None if bias is None else bias.detach()[self.token_ids]

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Returns logits of the whole vocabulary, ``[..., vocab]``.

        Args:
            states: ``[..., hidden]``.
        """
        found = F.linear(states, self.rows, self._bias)
        logits = found.new_full((*found.shape[:-1], self._vocab_size), -torch.inf)
        logits[..., self.token_ids] = found
        return logits


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
    """Returns what is not the target's: the layers and what stands around them.

    Args:
        slim: Of ``slim_model``.
    """
    embedding = slim.get_input_embeddings().weight
    return {
        name: parameter for name, parameter in slim.named_parameters() if parameter is not embedding
    }


def copied_layers(target: TransformersTarget, slim: Any, layers: Sequence[int]) -> None:
    """Fills a slim model with layers of its target, and its final norm.

    Args:
        target: The target.
        slim: Of ``slim_model``.
        layers: The target's layer for each of its own.
    """
    decoder, theirs = slim.get_decoder(), target.model.get_decoder()
    states = {
        name: value
        for name, value in theirs.state_dict().items()
        if not name.startswith(("layers.", "h.", "blocks."))
    }
    decoder.load_state_dict(states, strict=False, assign=True)
    for ours, number in zip(TransformersTarget.layers_of(slim), layers, strict=True):
        known = target.decoder_layers[number].state_dict()
        ours.load_state_dict({key: value.clone() for key, value in known.items()}, assign=True)
    decoder.norm = copy.deepcopy(theirs.norm)


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
    tensors[_TOKENS] = slim.get_output_embeddings().token_ids
    save_file(tensors, folder / _WEIGHTS, metadata={"format": "pt"})
    layers = int(slim.config.get_text_config().num_hidden_layers)
    content = {"num_layers": layers, "target": target.name, "fingerprint": target.fingerprint}
    (folder / SLIM).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def load_slim(folder: Path, target: TargetModel) -> HuggingFaceTarget:
    """Loads a slim model beside its target.

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
        tensors = load_file(folder / _WEIGHTS)
        made_for, token_ids = content["fingerprint"], tensors.pop(_TOKENS)
        slim = slim_model(target, content["num_layers"], token_ids)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"cannot read the slim model in {folder}: {error}") from error
    if made_for != target.fingerprint:
        raise ModelError(
            f"the slim model in {folder} was made for {content['target']}, with other weights than "
            f"{target.name} has",
            hint="train one for this target: specrag train distill",
        )
    states = {name: value.to(target.device, target.dtype) for name, value in tensors.items()}
    missing = set(own_weights(slim)) ^ set(states)
    if missing:
        raise ModelError(f"the slim model in {folder} is damaged: {sorted(missing)[0]}")
    slim.load_state_dict(states, strict=False, assign=True)
    return HuggingFaceTarget(slim, f"slim {target.name}")
