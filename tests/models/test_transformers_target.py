"""What a target says of itself, and the hidden states that it hands out."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from specrag.errors import ModelError
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.stateful import StatefulTarget
from specrag.models.target import FINAL_NORM
from specrag.models.tiny import tiny_target
from tests.architectures import new_model

TARGET = tiny_target()
COMMON: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
DECODER = COMMON | {
    "intermediate_size": 48,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("make", [HuggingFaceTarget, lambda m, n: StatefulTarget(m, n, "reason")])
def test_an_encoder_decoder_is_refused(make: Any) -> None:
    model = new_model("llama", **DECODER)
    model.config.is_encoder_decoder = True

    with pytest.raises(ModelError, match="'t5' has an encoder"):
        make(model, "t5")


def test_features_come_from_every_layer_asked_for_and_the_hooks_go() -> None:
    target = tiny_target(num_layers=3)
    rows = [[5, 6, 7, 8, 9], [10, 11]]
    wanted = (2, 0, FINAL_NORM)
    output = target.prefill(rows, target.new_cache(2), num_logits=2, feature_layers=wanted)
    assert not any(module._forward_hooks for module in target.model.modules())
    with torch.inference_mode():
        plain = [target.model(torch.tensor([row]), output_hidden_states=True) for row in rows]

    assert set(output.features) == set(wanted)
    for row, (tokens, expected) in enumerate(zip(rows, plain, strict=True)):
        found = {layer: states[row, : len(tokens)] for layer, states in output.features.items()}
        assert_close(found[0], expected.hidden_states[1][0])
        # transformers lists the last layer's states behind the final norm.
        assert_close(target.model.model.norm(found[2]), expected.hidden_states[3][0])
        assert_close(found[FINAL_NORM], expected.hidden_states[3][0])


def test_hooks_go_when_a_pass_fails() -> None:
    target = tiny_target()
    with pytest.raises(IndexError):
        target.prefill([[10_000]], target.new_cache(1), feature_layers=(1,))

    assert not target.model.model.layers[1]._forward_hooks


def test_no_features_unless_asked_for() -> None:
    assert TARGET.prefill([[5]], TARGET.new_cache(1)).features == {}


def test_the_context_ends_where_long_rope_would_turn_the_cached_keys() -> None:
    options: dict[str, Any] = {
        "original_max_position_embeddings": 32,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10_000.0,
            "factor": 2.0,
            "short_factor": [1.0] * 4,
            "long_factor": [3.0] * 4,
        },
    }

    assert HuggingFaceTarget(new_model("phi3", **DECODER, **options), "phi3").max_context == 32


def test_a_model_without_a_stated_context_gets_a_cautious_one() -> None:
    options = COMMON | {"hidden_size": 16}

    assert HuggingFaceTarget(new_model("falcon", **options), "falcon").max_context == 2048


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [(7, 2, (7,)), ([7, 9], 2, (7, 9)), (None, 2, (2,)), (None, None, ())],
)
def test_end_tokens_come_from_the_generation_config_first(
    generation: int | list[int] | None, config: int | None, expected: tuple[int, ...]
) -> None:
    model = new_model("llama", **DECODER)
    model.generation_config.eos_token_id, model.config.eos_token_id = generation, config

    assert HuggingFaceTarget(model, "llama").eos_token_ids == expected


def test_the_fingerprint_is_that_of_the_weights_whatever_their_name_and_dtype() -> None:
    renamed, rounded, nudged = tiny_target(), tiny_target(), tiny_target()
    renamed.name = "other"
    rounded.model.bfloat16()
    with torch.no_grad():
        nudged.model.lm_head.weight.mul_(1.5)

    assert renamed.fingerprint == rounded.fingerprint == TARGET.fingerprint
    assert len({TARGET.fingerprint, nudged.fingerprint, tiny_target(seed=1).fingerprint}) == 3
