"""The network of EAGLE-1 and EAGLE-2, option by option, against the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from specrag.drafters.heads.config import EagleConfig
from specrag.models.target import FINAL_NORM
from tests.drafters.heads.runs import (
    LAYER,
    LAYERS,
    VOCAB,
    assert_as_defined,
    assert_otherwise,
    run,
    seeded,
    with_layer,
)

PLAIN = EagleConfig(LAYER, VOCAB)
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "fc_bias": {"fc_bias": False},
    "input_norms": {"input_norms": True},
    "final_norm": {"final_norm": True},
    "num_layers": {"num_layers": 3},
}


def test_the_plain_head() -> None:
    head = seeded(PLAIN)
    assert_as_defined(head)
    assert head.feature_layers == (FINAL_NORM,)
    read, state = run(head)
    assert torch.equal(read, state)  # the target's LM head reads the predicted state


@pytest.mark.parametrize("name", OPTIONS)
def test_options_do_what_they_say(name: str) -> None:
    head = seeded(replace(PLAIN, **OPTIONS[name]))
    assert_as_defined(head)
    assert_otherwise(head, seeded(PLAIN))


@pytest.mark.parametrize("name", LAYERS)
def test_options_of_the_layer_do_what_they_say(name: str) -> None:
    head = seeded(with_layer(replace(PLAIN, num_layers=2), LAYERS[name]))
    assert_as_defined(head)
    assert_otherwise(head, seeded(replace(PLAIN, num_layers=2)))


def test_the_final_norm_is_for_the_lm_head_alone() -> None:
    (plain, state), (normed, next_state) = (
        run(seeded(PLAIN)),
        run(seeded(replace(PLAIN, final_norm=True))),
    )
    assert torch.equal(state, next_state)
    assert not torch.allclose(plain, normed)
