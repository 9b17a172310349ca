"""The choice of device and precision."""

from __future__ import annotations

import pytest
import torch

from specrag.errors import ModelError
from specrag.models import devices
from specrag.models.devices import DTYPES, pick_device, pick_dtype


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "", "ipu"])
def test_an_unusable_device_is_named_with_what_is_allowed(device: str) -> None:
    with pytest.raises(ModelError, match=f"cannot use the device '{device}'") as caught:
        pick_device(device)

    assert "auto, cpu" in str(caught.value.hint)


def test_devices_that_are_here_can_be_picked() -> None:
    best = "cuda" if torch.cuda.is_available() else "cpu"

    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device("auto").type == best


def test_an_unknown_dtype_is_named_with_what_is_allowed() -> None:
    with pytest.raises(ModelError, match=r"unknown dtype 'int8'; allowed: auto, float32, bfloat16"):
        pick_dtype("int8", torch.device("cpu"))


@pytest.mark.parametrize(("name", "dtype"), DTYPES.items())
def test_a_named_dtype_is_taken(name: str, dtype: torch.dtype) -> None:
    assert pick_dtype(name, torch.device("cpu")) == dtype


@pytest.mark.parametrize(
    ("device", "has_bfloat16", "expected"),
    [
        ("cpu", False, torch.float32),
        ("cpu", True, torch.bfloat16),
        ("cuda", False, torch.bfloat16),
    ],
)
def test_the_automatic_dtype_is_what_the_machine_computes_in(
    device: str, has_bfloat16: bool, expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "_cpu_has_bfloat16", lambda: has_bfloat16)

    assert pick_dtype("auto", torch.device(device)) == expected
