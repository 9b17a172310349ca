"""What every target made of a transformers causal LM has: a description of itself, and features."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from specrag.errors import ConfigError, ModelError
from specrag.models.target import FINAL_NORM, TargetModel


class TransformersTarget(TargetModel):
    """A transformers causal LM, used as it is.

    Args:
        model: A loaded causal LM.
        name: What users call it.

    Raises:
        ModelError: The model has an encoder.
    """

    def __init__(self, model: Any, name: str) -> None:
        if getattr(model.config, "is_encoder_decoder", False):
            raise ModelError(
                f"the model {name!r} has an encoder, which specrag does not run",
                hint="use a decoder-only model, such as Llama, Qwen or Mistral",
            )
        self.model = model.eval()
        self.name = name
        config = model.config.get_text_config()
        self.vocab_size = int(config.vocab_size)
        self.max_context = max_context(config)
        self.eos_token_ids = _eos_token_ids(model)
        self._fingerprint: str | None = None
        self._trims_logits = "logits_to_keep" in forward_parameters(model)

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return torch.device(next(iter(self.model.parameters())).device)

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the weights."""
        dtype: torch.dtype = next(iter(self.model.parameters())).dtype
        return dtype

    @property
    def decoder_layers(self) -> Any:
        """The modules of the decoder's layers, from the lowest up."""
        return self.layers_of(self.model)

    @staticmethod
    def layers_of(model: Any) -> Any:
        """Returns the decoder layers of any causal LM.

        Args:
            model: Of transformers.
        """
        return _decoder_layers(model)

    @property
    def final_norm(self) -> Any:
        """The module behind the last layer; None where the decoder has none of a known name."""
        decoder = self.model.get_decoder()
        names = ("norm", "final_layernorm", "final_layer_norm", "ln_f")
        return next((found for name in names if (found := getattr(decoder, name, None))), None)

    @property
    def fingerprint(self) -> str:
        """A digest of sampled weights; neither name nor dtype counts."""
        if self._fingerprint is None:
            digest = hashlib.sha256()
            for key, parameter in self.model.named_parameters():
                flat = parameter.detach().reshape(-1)
                # Rounded alike, whatever the precision that the weights were loaded in.
                sample = flat[:: max(1, flat.numel() // 16)][:16].bfloat16().float().cpu()
                digest.update(key.encode() + sample.numpy().tobytes())
            self._fingerprint = digest.hexdigest()[:16]
        return self._fingerprint

    @contextmanager
    def _captured_features(self, layers: Sequence[int]) -> Iterator[dict[int, torch.Tensor]]:
        """Collects the output of the named layers during one pass."""
        captured: dict[int, torch.Tensor] = {}
        sources = {layer: self._source_of(layer) for layer in layers}
        handles = [
            source.register_forward_hook(_keep(captured, layer))
            for layer, source in sources.items()
        ]
        try:
            yield captured
        finally:
            for handle in handles:
                handle.remove()

    def _source_of(self, layer: int) -> Any:
        """The module whose output is called by that number."""
        if layer == FINAL_NORM:
            return self.model.get_decoder()
        layers = _decoder_layers(self.model)
        if not 0 <= layer < len(layers):
            raise ConfigError(
                f"{self.name} has no decoder layer {layer}: it has 0 to {len(layers) - 1}, and "
                f"{FINAL_NORM} stands for the states behind its final norm",
                hint="a draft head that reads other layers was made for another model",
            )
        return layers[layer]


def forward_parameters(model: Any) -> frozenset[str]:
    """Returns the names of the arguments that a model's forward takes.

    Args:
        model: A transformers causal LM.
    """
    return frozenset(inspect.signature(inspect.unwrap(type(model).forward)).parameters)


def max_context(config: Any) -> int:
    """Returns the most tokens that a model was made for, as its configuration states.

    Args:
        config: The text configuration of a model.
    """
    rope = getattr(config, "rope_parameters", None) or {}
    limits = [getattr(config, "max_position_embeddings", None)]
    if rope.get("rope_type") == "longrope":
        # Beyond it the rotation of every earlier key changes, those in the cache included.
        limits.append(rope.get("original_max_position_embeddings"))
    known = [int(limit) for limit in limits if limit]
    return min(known) if known else 2048


def _eos_token_ids(model: Any) -> tuple[int, ...]:
    value = getattr(model.generation_config, "eos_token_id", None)
    if value is None:
        value = getattr(model.config, "eos_token_id", None)
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (int(value),)


def _decoder_layers(model: Any) -> Any:
    decoder = model.get_decoder()
    for attribute in ("layers", "h", "blocks"):
        if hasattr(decoder, attribute):
            return getattr(decoder, attribute)
    raise ModelError(f"cannot find the layers of {type(decoder).__name__}")


def _keep(captured: dict[int, torch.Tensor], index: int) -> Callable[..., None]:
    def hook(_module: Any, _inputs: Any, output: Any) -> None:
        # A whole decoder returns a record whose first field are its last hidden states.
        captured[index] = output if isinstance(output, torch.Tensor) else output[0]

    return hook
