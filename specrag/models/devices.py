"""The device and the precision that a model runs in, from a user's choice."""

from __future__ import annotations

import torch

from specrag.errors import ModelError
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


def _cpu_has_bfloat16() -> bool:
    capabilities = torch.backends.cpu.get_cpu_capability()
    if not capabilities.startswith("AVX512"):
        return False
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
