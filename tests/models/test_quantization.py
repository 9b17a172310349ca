from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specrag.errors import ConfigError
from specrag.models.quantization import packed


def drawn(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize(("quantization", "most"), [("float16", 5e-4), ("int8", 0.015)])
@pytest.mark.parametrize("shape", [(1, 48), (5, 48), (2, 3, 48), (70, 48)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_products_are_those_of_the_weight(
    quantization: str, most: float, shape: tuple[int, ...], has_bias: bool
) -> None:
    weight, states = drawn(96, 48), drawn(*shape, seed=1)
    bias = drawn(96, seed=2) if has_bias else None
    linear = packed(weight, bias, quantization=quantization)
    before = states.clone()
    expected = torch.nn.functional.linear(states, weight, bias)
    assert relative(linear(states), expected) < most
    factor = drawn(*shape[:-1], 1, seed=3).abs() + 0.5
    expected = torch.nn.functional.linear(states * factor, weight, bias)
    assert relative(linear(states, factor), expected) < most
    assert torch.equal(states, before)


@given(rows=st.integers(1, 9), seed=st.integers(0, 99), loud=st.floats(1e-3, 1e4))
def test_int8_rows_keep_their_bits_whatever_lies_beside_them(
    rows: int, seed: int, loud: float
) -> None:
    linear = packed(drawn(32, 64), quantization="int8")
    states = drawn(rows, 64, seed=seed)
    together = linear(torch.cat([states, drawn(3, 64, seed=seed + 1, scale=loud)]))[:rows]
    alone = torch.cat([linear(row.unsqueeze(0)) for row in states])
    assert torch.equal(together, alone)


def test_int8_takes_the_largest_values_without_saturating() -> None:
    """Pairs of products are added up in 16 bits on some processors."""
    weight = torch.ones(8, 64)
    weight[::2] = -1.0
    states = torch.ones(2, 64)
    states[1] = -1.0
    expected = torch.nn.functional.linear(states, weight)
    torch.testing.assert_close(packed(weight, quantization="int8")(states), expected)


@pytest.mark.parametrize("quantization", ["float16", "int8"])
def test_rows_and_weights_of_zeros_give_zeros(quantization: str) -> None:
    weight = drawn(8, 16)
    weight[3] = 0.0
    states = drawn(3, 16, seed=1)
    states[1] = 0.0
    found = packed(weight, quantization=quantization)(states)
    assert not found[1].any()
    assert not found[:, 3].any()
    assert found[0, 0] != 0


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(ConfigError, match="unknown quantization 'int9'; did you mean 'int8'"):
        packed(drawn(4, 4), quantization="int9")
