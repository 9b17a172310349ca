"""The choice of device and precision."""

from __future__ import annotations

import pytest
import torch

from specrag.errors import ConfigError, ModelError
from specrag.models import devices
from specrag.models.devices import DTYPES, pick_device, pick_dtype, pick_quantization
from specrag.models.quantization import QUANTIZATIONS


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


@pytest.mark.parametrize(
    ("dtype", "device", "has_fbgemm", "expected"),
    [
        ("auto", "cpu", True, "float16"),
        ("auto", "cpu", False, "none"),
        ("float32", "cpu", True, "none"),  # who asks for a precision gets it
        ("auto", "cuda", True, "none"),
    ],
)
def test_weights_are_packed_where_that_is_faster_and_nothing_else_was_asked_for(
    dtype: str, device: str, has_fbgemm: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "_cpu_has_fbgemm", lambda: has_fbgemm)
    assert pick_quantization("auto", dtype, torch.device(device)) == expected


@pytest.mark.parametrize("name", QUANTIZATIONS)
@pytest.mark.parametrize("dtype", ["auto", "float32"])
def test_a_named_quantization_is_taken(
    name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "_cpu_has_fbgemm", lambda: True)
    assert pick_quantization(name, dtype, torch.device("cpu")) == name


@pytest.mark.parametrize(
    ("name", "dtype", "device", "said"),
    [
        ("int4", "auto", "cpu", "unknown quantization 'int4'"),
        ("flaot16", "auto", "cpu", "did you mean 'float16'"),
        ("int8", "bfloat16", "cpu", "int8 computes in float32, not in bfloat16"),
        ("float16", "auto", "cuda", "is for x86 processors, and the model runs on cuda"),
    ],
)
def test_a_quantization_that_cannot_be_is_refused(
    name: str, dtype: str, device: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        pick_quantization(name, dtype, torch.device(device))
