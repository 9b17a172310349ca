"""Settings and rotary parameters, from every nesting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from specrag.drafters.checkpoints.rope import rope_parameters
from specrag.drafters.checkpoints.settings import Settings
from specrag.errors import ModelError


def settings(config: dict[str, Any]) -> Settings:
    return Settings(config, "head")


def test_nested_fields_are_found_and_outer_ones_win() -> None:
    found = settings(
        {
            "speculators_model_type": "eagle3",
            "architectures": ["Eagle3Speculator"],
            "draft_vocab_size": 8,
            "head_dim": None,
            "transformer_layer_config": {
                "architectures": ["LlamaForCausalLM"],
                "model_type": "qwen3",
                "head_dim": 4,
                "draft_vocab_size": 9,
            },
            "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2]},
        }
    )
    assert found.integer("head_dim") == 4
    assert found.integer("draft_vocab_size") == 8
    assert found.integers("eagle_aux_hidden_state_layer_ids") == (1, 2)
    assert found.architectures == "Eagle3Speculator"
    assert (found.speculators_type, found.layer_type) == ("eagle3", "qwen3")


def test_what_is_absent_is_none() -> None:
    found = settings({})
    for read in (found.integer, found.flag, found.integers, found.mapping):
        assert read("a") is None
    assert found.number("a", 2.5) == 2.5
    assert found.architectures == ""


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (Settings.integer, "8"),
        (Settings.integer, 0),
        (Settings.integer, True),
        (Settings.integer, 2.0),
        (lambda s, key: s.number(key, 1.0), "1e-5"),
        (lambda s, key: s.number(key, 1.0), -1),
        (lambda s, key: s.number(key, 1.0), float("nan")),
        (Settings.flag, 1),
        (Settings.flag, "true"),
        (Settings.integers, 3),
        (Settings.integers, [1, -1]),
        (Settings.integers, ["1"]),
        (Settings.mapping, [1]),
    ],
)
def test_a_field_of_another_type(read: Callable[[Settings, str], Any], value: object) -> None:
    with pytest.raises(ModelError, match=r"field in the config\.json of the draft head 'head'"):
        read(settings({"field": value}), "field")


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({}, {"rope_type": "default", "rope_theta": 10000.0}),
        ({"rope_theta": 500000}, {"rope_type": "default", "rope_theta": 500000.0}),
        ({"rope_scaling": None}, {"rope_type": "default", "rope_theta": 10000.0}),
        (
            {"rope_theta": 3.0, "rope_scaling": {"type": "linear", "factor": 2.0}},
            {"rope_type": "linear", "rope_theta": 3.0, "factor": 2.0},
        ),
        (
            {"rope_scaling": {"rope_type": "linear", "type": "dynamic", "factor": 2.0}},
            {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0},
        ),
        (
            {"rope_parameters": {"rope_type": "default", "rope_theta": 7}, "rope_theta": 8},
            {"rope_type": "default", "rope_theta": 7.0},
        ),
        (
            {
                "rope_parameters": {
                    "full_attention": {"rope_type": "default", "rope_theta": 7},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 9},
                }
            },
            {"rope_type": "default", "rope_theta": 9.0},
        ),
        (
            {"rope_parameters": {"full_attention": {"rope_theta": 7}}},
            {"rope_type": "default", "rope_theta": 7.0},
        ),
        (
            {"rope_scaling": {"type": "mrope", "mrope_section": [1, 2, 3]}},
            {"rope_type": "default", "rope_theta": 10000.0},
        ),
    ],
)
def test_rotary_parameters(config: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert rope_parameters(settings(config), "head") == wanted


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"rope_scaling": {"type": "linea", "factor": 2.0}}, "did you mean 'linear'"),
        ({"partial_rotary_factor": 0.5}, "rotates 0.5 of each"),
        ({"rope_parameters": {"partial_rotary_factor": 0.25}}, "rotates 0.25 of each"),
        ({"rope_theta": "big"}, "rope_theta"),
        ({"rope_scaling": "linear"}, "rope_scaling"),
    ],
)
def test_rotary_parameters_that_are_refused(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        rope_parameters(settings(config), "head")
