"""Packed linear layers: weights kept in fewer bits, in the layout that the CPU kernels want.

The kernels are FBGEMM's, which torch brings along. Plain weights are packed anew in every product
with more than one row, which made a pass over two tokens cost nearly twice one over one; packed
ones are read once, whatever the number of rows, and that is what speculation lives on.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from specrag.errors import ConfigError, suggest

QUANTIZATIONS = ("none", "float16", "int8")

_LEVELS = 127  # of an activation, on either side of zero
_ZERO = 128
_FULL, _SAFE = 127, 63
"""Largest whole number of a weight. Without VNNI, two products are added up in 16 bits, which
holds two of 8 by 7 bits and no more; eight bits for activations and seven for weights cost far
less than the other way round (SmolLM2-135M on code, layer by layer: log-likelihoods 1.6 % and
6.5 % worse)."""
_TINY = 1e-30  # so that a row of zeros is not divided by zero


class PackedLinear(nn.Module):
    """A linear layer whose weights can no longer be read, for inference on a CPU.

    A row of what it returns does not depend on the other rows: drafts are verified as they would
    have been decoded.

    Args:
        bias: ``[out]`` float32, or None.
    """

    def __init__(self, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.bias = bias

    def forward(self, states: torch.Tensor, factor: torch.Tensor | None = None) -> torch.Tensor:
        """Returns the products.

        Args:
            states: ``[..., in]`` float32.
            factor: What every row of the input is to be multiplied by, ``[..., 1]``.

        Returns:
            ``[..., out]`` float32.
        """
        found = self._products(states, factor)
        return found if self.bias is None else found.add_(self.bias)

    @abstractmethod
    def _products(self, states: torch.Tensor, factor: torch.Tensor | None) -> torch.Tensor:
        """The products without the bias, in memory of their own."""


class HalfLinear(PackedLinear):
    """Weights in float16, products in float32: half the memory, and next to nothing is lost.

    Args:
        weight: ``[out, in]``.
        bias: ``[out]``, or None.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        super().__init__(None if bias is None else bias.float())
        self._packed = torch.ops.quantized.linear_prepack_fp16(weight.float(), None)
        self._multiply = _direct(torch.ops.quantized.linear_dynamic_fp16.default)

    def _products(self, states: torch.Tensor, factor: torch.Tensor | None) -> torch.Tensor:
        found = self._multiply(states, self._packed)
        return found if factor is None else found.mul_(factor)


class ByteLinear(PackedLinear):
    """Weights in eight bits with a scale for each output, activations with one for each row.

    A scale for all rows together, as dynamic quantization has it, would tie a row to its
    neighbours, and loses far more.

    Args:
        weight: ``[out, in]``.
        bias: ``[out]``, or None.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        super().__init__(None if bias is None else bias.float())
        weight = weight.float()
        levels = _FULL if torch.cpu._is_vnni_supported() else _SAFE
        scales = weight.abs().amax(1).clamp(min=_TINY) / levels
        whole = (weight / scales.unsqueeze(1)).round_().to(torch.int8)
        zeros = torch.zeros(len(scales), dtype=torch.long)
        with warnings.catch_warnings():
            # Tensors of this kind are to go from torch, which is pinned; they live until packed.
            warnings.simplefilter("ignore", UserWarning)
            quantized = torch._make_per_channel_quantized_tensor(whole, scales.double(), zeros, 0)
        self._packed = torch.ops.quantized.linear_prepack(quantized, None)
        self._multiply = _direct(
            torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default
        )

    def _products(self, states: torch.Tensor, factor: torch.Tensor | None) -> torch.Tensor:
        largest = states.abs().amax(-1, keepdim=True).clamp_(min=_TINY)
        found = self._multiply(states / largest, 1 / _LEVELS, _ZERO, self._packed)
        return found.mul_(largest if factor is None else largest * factor)


def _direct(operator: Any) -> Callable[..., torch.Tensor]:
    """Returns an operator without the checks in Python that precede it where it holds weights.

    They take longer than the product of a small layer, and find nothing here.
    """
    call: Callable[..., torch.Tensor] = getattr(operator, "_op", operator)
    return call


def packed(
    weight: torch.Tensor, bias: torch.Tensor | None = None, *, quantization: str
) -> PackedLinear:
    """Packs a linear layer.

    Args:
        weight: ``[out, in]``, any floating type; is not kept.
        bias: ``[out]``, or None.
        quantization: ``float16`` or ``int8``.

    Raises:
        ConfigError: There is no such kind.
    """
    kinds: dict[str, type[HalfLinear | ByteLinear]] = {"float16": HalfLinear, "int8": ByteLinear}
    if quantization not in kinds:
        raise ConfigError(
            f"unknown quantization {quantization!r}; {suggest(quantization, tuple(kinds))}"
        )
    return kinds[quantization](weight.detach(), bias)


def pack_linears(module: nn.Module, quantization: str) -> None:
    """Packs the linear layers of a module, LM heads excepted.

    Args:
        module: Its layers are replaced.
        quantization: ``float16`` or ``int8``.
    """
    for name, part in list(module.named_modules()):
        for key, child in list(part.named_children()):
            # Of an LM head single rows are read as well.
            if isinstance(child, nn.Linear) and "lm_head" not in f"{name}.{key}":
                setattr(part, key, packed(child.weight, child.bias, quantization=quantization))
