"""Which layers a head reads: the table of conventions."""

from __future__ import annotations

from typing import Any

import pytest

from specrag.drafters.checkpoints.feature_layers import feature_layer_readings
from specrag.drafters.checkpoints.settings import Settings
from specrag.errors import ModelError
from specrag.models.target import FINAL_NORM

KEY = "eagle_aux_hidden_state_layer_ids"
SPECULATORS = {"speculators_model_type": "eagle3"}


def readings(
    config: dict[str, Any], count: int = 3, num_layers: int = 32
) -> tuple[tuple[int, ...], ...]:
    return feature_layer_readings(Settings(config, "head"), count, num_layers, "head", [])


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        # Nothing said: the authors' hidden_states[2], [n / 2] and [n - 3].
        ({}, [(1, 15, 28), (2, 16, 29), (0, 14, 27)]),
        # ModelOpt and SpecForge's gpt-oss: outputs of blocks.
        ({KEY: [1, 15, 28]}, [(1, 15, 28), (0, 14, 27)]),
        ({"eagle_config": {KEY: [1, 11, 21]}}, [(1, 11, 21), (0, 10, 20)]),
        # vLLM, SGLang: borders between blocks.
        ({KEY: [2, 16, 29]}, [(1, 15, 28), (2, 16, 29)]),
        ({KEY: [3, 16, 29]}, [(2, 15, 28), (3, 16, 29)]),
        # speculators always counts borders.
        ({**SPECULATORS, KEY: [1, 15, 28]}, [(0, 14, 27), (1, 15, 28)]),
        ({**SPECULATORS, "target_layer_ids": [2, 16, 29]}, [(1, 15, 28), (2, 16, 29)]),
        # The border behind the last block is before the final norm, and some took it behind.
        ({KEY: [24, 30, 32]}, [(23, 29, 31), (23, 29, FINAL_NORM)]),
        ({KEY: [1, 16, 32]}, [(0, 15, 31), (0, 15, FINAL_NORM)]),
        # There is no block before the embeddings.
        ({KEY: [0, 15, 28]}, [(0, 15, 28)]),
    ],
)
def test_conventions(config: dict[str, Any], wanted: list[tuple[int, ...]]) -> None:
    assert list(readings(config)) == wanted


def test_another_number_of_layers() -> None:
    assert readings({KEY: [2, 8]}, count=2)[0] == (1, 7)
    assert readings({KEY: [2, 8, 9, 10, 11]}, count=5)[0] == (1, 7, 8, 9, 10)


def test_the_declared_reading_comes_first_even_where_the_target_lacks_it() -> None:
    assert readings({KEY: [2, 16, 40]}) == ((1, 15, 39),)


@pytest.mark.parametrize(
    ("config", "count", "said"),
    [
        ({}, 2, "reads 2 layers of the target, and its config.json does not tell"),
        ({KEY: [2, 16]}, 3, r"reads 3 layers of the target, and its config.json names 2: \[2, 16"),
        ({KEY: [2, -3, 4]}, 3, KEY),
    ],
)
def test_what_cannot_be_read(config: dict[str, Any], count: int, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        readings(config, count)
