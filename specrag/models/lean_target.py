"""LeanTarget: a target whose weights are packed, computed by a ``LeanDecoder``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from specrag.errors import ModelError
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.kv_cache import KVCache
from specrag.models.lean import LeanDecoder, lean_obstacle
from specrag.models.target import ModelOutput


class LeanTarget(HuggingFaceTarget):
    """A causal LM with packed weights, for a CPU.

    Its output is what the packed model says, with or without speculation: packing is a choice of
    the target, not an approximation on the way.

    Args:
        model: A loaded causal LM on the CPU; its linear layers are emptied, so that weights are
            not held twice.
        name: What users call it.
        quantization: ``float16`` or ``int8``, see ``quantization``.

    Attributes:
        quantization: As given.

    Raises:
        ModelError: The model is of an architecture, or on a device, that packing does not know.
    """

    def __init__(self, model: Any, name: str, quantization: str) -> None:
        if obstacle := packing_obstacle(model):
            raise ModelError(
                f"the model {name!r} cannot be packed as {quantization}: it {obstacle}",
                hint="quantization none runs it as it is",
            )
        super().__init__(model, name)
        self.quantization = quantization
        # Of the weights as they were: heads that were trained for them still fit.
        self._fingerprint = self.fingerprint
        self._decoder = LeanDecoder(model, quantization).eval()
        _empty_linears(model)

    @property
    def dtype(self) -> torch.dtype:
        """Data type of states and of the cache."""
        return torch.float32

    def _evaluated(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        masks: torch.Tensor | dict[str, torch.Tensor],
        cache: KVCache,
        columns: torch.Tensor | None,
        feature_layers: Sequence[int],
    ) -> ModelOutput:
        for layer in feature_layers:
            self._source_of(layer)  # refuses those that are not there
        assert isinstance(masks, torch.Tensor), "one kind of layer has one mask"
        logits, features = self._decoder(
            token_ids, positions, masks, cache, columns=columns, feature_layers=feature_layers
        )
        return ModelOutput(logits, features)


def packing_obstacle(model: Any) -> str:
    """Returns why a model cannot be packed; empty when it can.

    Args:
        model: A transformers causal LM.
    """
    device = next(iter(model.parameters())).device.type
    return f"runs on {device}" if device != "cpu" else lean_obstacle(model)


def _empty_linears(model: Any) -> None:
    """Drops the weights of the layers; token embeddings, and an LM head, are still read."""
    for module in model.get_decoder().layers.modules():
        if isinstance(module, nn.Linear):
            module.weight = nn.Parameter(module.weight.new_empty(0, 0), requires_grad=False)
            module.register_parameter("bias", None)
