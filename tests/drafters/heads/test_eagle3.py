"""The network of EAGLE-3, option by option, against the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from specrag.drafters.heads.config import Eagle3Config
from tests.drafters.heads.runs import (
    LAYER,
    LAYERS,
    TARGET,
    VOCAB,
    WIDTH,
    assert_as_defined,
    assert_otherwise,
    run,
    seeded,
    with_layer,
)

PLAIN = Eagle3Config(LAYER, VOCAB, VOCAB, TARGET, (1, 3, 4))
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "fc_bias": {"fc_bias": True},
    "norm_before_residual": {"norm_before_residual": True},
    "norm_before_fc": {"norm_before_fc": True},
    "fc_norm": {"fc_norm": True},
    "both norms": {"fc_norm": True, "norm_before_fc": True},
    "norm_output": {"norm_output": True},
    "num_layers": {"num_layers": 3},
    "one feature": {"feature_layers": (2,)},
    "four features": {"feature_layers": (0, 1, 2, 3)},
}


def test_the_plain_head() -> None:
    head = seeded(PLAIN)
    assert_as_defined(head)
    assert head.feature_layers == (1, 3, 4)


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


def test_what_goes_round_is_normed_only_where_it_is_asked_for() -> None:
    (read, state), (normed, next_state) = (
        run(seeded(PLAIN)),
        run(seeded(replace(PLAIN, norm_output=True))),
    )
    assert torch.equal(read, normed)
    assert torch.equal(normed, next_state)
    assert not torch.allclose(state, next_state)


@pytest.mark.parametrize("own", [False, True])
def test_embeddings_and_lm_head_are_there_where_they_are_its_own(own: bool) -> None:
    config = replace(PLAIN, own_embedding=own, own_lm_head=own, draft_vocab_size=9)
    shapes = {key: tuple(value.shape) for key, value in seeded(config).state_dict().items()}
    assert shapes.get("embed_tokens.weight") == ((VOCAB, WIDTH) if own else None)
    assert shapes.get("lm_head.weight") == ((9, WIDTH) if own else None)
    assert shapes["fc.weight"] == (WIDTH, 3 * TARGET)
    assert shapes["layers.0.self_attn.q_proj.weight"] == (16, 2 * WIDTH)
