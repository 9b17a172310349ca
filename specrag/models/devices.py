"""The device and the precision that a model runs in, from a user's choice."""

from __future__ import annotations

import torch

from specrag.errors import ConfigError, ModelError, suggest
from specrag.models.quantization import QUANTIZATIONS
from specrag.models.tokenizer import first_line

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def pick_device(device: str) -> torch.device:
    """Returns the torch device for a user's choice.

    Args:
        device: A torch device string, or ``auto``.

    Raises:
        ModelError: torch does not know it, or this machine has none.
    """
    if device != "auto":
        try:
            return torch.empty(0, device=device).device
        except (RuntimeError, AssertionError) as error:
            raise ModelError(
                f"cannot use the device {device!r}: {first_line(error)}",
                hint="allowed: auto, cpu, and cuda or another accelerator of this machine",
            ) from error
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("cpu")


def pick_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """Returns the torch dtype for a user's choice.

    Args:
        dtype: A name of ``DTYPES``, or ``auto``.
        device: Where the model will run.

    Raises:
        ModelError: The name is unknown.
    """
    if dtype == "auto":
        return torch.bfloat16 if device.type != "cpu" or _cpu_has_bfloat16() else torch.float32
    if dtype not in DTYPES:
        raise ModelError(f"unknown dtype {dtype!r}; allowed: auto, {', '.join(DTYPES)}")
    return DTYPES[dtype]


def pick_quantization(quantization: str, dtype: str, device: torch.device) -> str:
    """Returns how weights are to be packed, for a user's choice.

    Args:
        quantization: A name of ``QUANTIZATIONS``, or ``auto``: packed on a CPU, unless a
            precision was asked for.
        dtype: The user's choice of precision.
        device: Where the model will run.

    Raises:
        ConfigError: The name is unknown, or does not go with the precision or the device.
    """
    if quantization == "auto":
        packs = device.type == "cpu" and dtype == "auto" and _cpu_has_fbgemm()
        return "float16" if packs else "none"
    if quantization not in QUANTIZATIONS:
        allowed = ("auto", *QUANTIZATIONS)
        raise ConfigError(
            f"unknown quantization {quantization!r}; {suggest(quantization, allowed)}"
        )
    if quantization != "none" and dtype not in ("auto", "float32"):
        raise ConfigError(
            f"quantization {quantization} computes in float32, not in {dtype}",
            hint="leave dtype at auto",
        )
    if quantization != "none" and (device.type != "cpu" or not _cpu_has_fbgemm()):
        raise ConfigError(
            f"quantization {quantization} is for x86 processors, and the model runs on {device}",
            hint="leave quantization at auto",
        )
    return quantization


def _cpu_has_fbgemm() -> bool:
    return "fbgemm" in torch.backends.quantized.supported_engines


def _cpu_has_bfloat16() -> bool:
    capabilities = torch.backends.cpu.get_cpu_capability()
    if not capabilities.startswith("AVX512"):
        return False
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
