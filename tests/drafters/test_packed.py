"""Drafters beside a packed target: packed as it is, and as exact as beside any other."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from specrag.decoding.drafter import named_drafter
from specrag.decoding.generator import SpeculativeGenerator
from specrag.decoding.sampling import SamplingParams
from specrag.drafters.eagle import EagleDrafter
from specrag.drafters.heads.surroundings import embedding_of, fitted, projection_of
from specrag.drafters.medusa import MedusaDrafter
from specrag.drafters.neural.head_session import HeadOptions
from specrag.models.lean_target import LeanTarget
from specrag.models.quantization import PackedLinear
from specrag.models.slim import copied_layers, load_slim, save_slim, slim_model
from tests.drafters.kit import TOKENIZER, model, prompt
from tests.drafters.reading import eagle_heads, medusa_heads

IDS = torch.arange(4, 70)
ALL = HeadOptions(min_confidence=0.0)
MAKERS: dict[str, Callable[[], Any]] = {
    "suffix": lambda: named_drafter("suffix"),
    "eagle3": lambda: EagleDrafter(eagle_heads(), IDS, options=ALL),
    "eagle3, own": lambda: EagleDrafter(
        eagle_heads(own_lm_head=True, draft_vocab_size=len(IDS)), IDS, options=ALL
    ),
    "eagle2": lambda: EagleDrafter(eagle_heads(generation=2), IDS, options=ALL),
    "medusa": lambda: MedusaDrafter(medusa_heads(), IDS),
    "medusa, own": lambda: MedusaDrafter(medusa_heads(scale=0.3, own_lm_head=True), IDS),
}


@cache
def lean(quantization: str) -> LeanTarget:
    plain = copy.deepcopy(model().model).float()
    return LeanTarget(plain, f"lean-{quantization}", quantization)


@pytest.mark.parametrize("quantization", ["float16", "int8"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", MAKERS)
def test_text_is_that_of_plain_decoding(name: str, temperature: float, quantization: str) -> None:
    target = lean(quantization)
    settings = SamplingParams(max_tokens=24, temperature=temperature, seed=5)
    prompts = [prompt(number) for number in range(6)]
    plain = SpeculativeGenerator(target, TOKENIZER, "none").generate_batch(prompts, settings)
    drafted = SpeculativeGenerator(target, TOKENIZER, MAKERS[name]()).generate_batch(
        prompts, settings
    )
    assert [found.token_ids for found in drafted] == [found.token_ids for found in plain]
    assert sum(found.stats.num_draft_tokens for found in drafted) > 0


@torch.no_grad()
@pytest.mark.parametrize(("quantization", "most"), [("float16", 2e-3), ("int8", 0.1)])
def test_heads_are_packed_as_their_target_is(quantization: str, most: float) -> None:
    target, head = lean(quantization), eagle_heads().float()
    before = {key: value.clone() for key, value in head.state_dict().items()}
    made = fitted(head, target)
    linears = [part for part in made.modules() if isinstance(part, PackedLinear)]
    assert len(linears) == 8  # fc, and seven of the layer
    assert not any(isinstance(part, torch.nn.Linear) for part in made.modules())
    for key, value in head.state_dict().items():
        assert torch.equal(value, before[key]), key
    features = [torch.randn(3, 32) for _ in head.feature_layers]
    expected, found = head.fuse(features), made.fuse(features)
    assert float((found - expected).norm() / expected.norm()) < most
    states = torch.randn(2, 3, 32)
    rows = target.model.get_output_embeddings().weight[IDS].float()
    said = projection_of(made, target, IDS).logits(states)
    assert float((said - states @ rows.T).norm() / said.norm()) < most
    assert embedding_of(made, target) is target.model.get_input_embeddings()


def test_a_slim_draft_model_is_packed_too(tmp_path: Path) -> None:
    plain = model()
    plain.model.float()
    slim = slim_model(plain, 1, IDS)
    copied_layers(plain, slim, [0])
    save_slim(tmp_path, slim, plain, torch.float32)
    beside, packed_one = load_slim(tmp_path, plain), load_slim(tmp_path, lean("float16"))
    assert (beside.quantization, packed_one.quantization) == ("none", "float16")
    text = list(prompt(3))
    said = [each.prefill([text], each.new_cache(1)).logits for each in (beside, packed_one)]
    assert said[1].isinf().equal(said[0].isinf())
    known = said[0].isfinite()
    torch.testing.assert_close(said[1][known], said[0][known], atol=0.02, rtol=5e-3)
