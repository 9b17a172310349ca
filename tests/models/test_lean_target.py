"""Packed targets: the plain model with the same weights is the oracle, on every kind of pass."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch

from specrag.decoding.tree import DraftTree, pack
from specrag.drafters.heads.projection import Projection
from specrag.errors import ConfigError, ModelError
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.lean_target import LeanTarget, packing_obstacle
from specrag.models.target import FINAL_NORM, TreePass
from tests.architectures import SPECULATING, new_model

LEAN = ("llama", "mistral", "mistral-window", "qwen2", "qwen3")
PROMPTS = [[5, 9, 11, 7, 30, 12, 8, 21, 33, 6, 14, 3], [4, 17, 5], [22, 8, 9, 10, 31, 5, 16]]
TREE = DraftTree((7, 8, 9, 7, 5, 6), (-1, -1, 0, 1, 2, 2))

every_lean_model = pytest.mark.parametrize("name", LEAN)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads only wait for each other on matrices this small, most of all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def model_of(name: str) -> Any:
    kind, options = SPECULATING[name]
    return new_model(kind, **options)


@cache
def plain(name: str) -> HuggingFaceTarget:
    """With weights that float16 holds exactly, norms that do something, and biases."""
    model = model_of(name)
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape, generator=draw) * 0.2)
            elif "layers" not in key:
                parameter.mul_(4)
            parameter.copy_(parameter.half().float())
    return HuggingFaceTarget(model, name)


@cache
def lean(name: str, quantization: str = "float16") -> LeanTarget:
    return LeanTarget(copy.deepcopy(plain(name).model), name, quantization)


def distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@every_lean_model
@pytest.mark.parametrize(("quantization", "most"), [("float16", 2e-3), ("int8", 0.12)])
def test_passes_are_those_of_the_plain_model(name: str, quantization: str, most: float) -> None:
    """Ragged prompts, then a tree in each row, with features: all of it."""
    outputs = []
    for target in (plain(name), lean(name, quantization)):
        cache = target.new_cache(len(PROMPTS), 4)
        layers = (0, 1, FINAL_NORM)
        read = target.prefill(PROMPTS, cache, 2, layers)
        tree = pack([5, 9, 3], [TREE] * len(PROMPTS))
        said = target.forward(tree, cache, layers)
        outputs.append([read, said])
    for expected, found in zip(*outputs, strict=True):
        assert found.logits.shape == expected.logits.shape
        assert distance(found.logits, expected.logits) < most
        for layer, states in expected.features.items():
            for row, prompt in enumerate(PROMPTS):
                real = slice(None) if expected is outputs[0][1] else slice(len(prompt))
                assert distance(found.features[layer][row, real], states[row, real]) < most


@every_lean_model
def test_float16_loses_what_float16_rounds_and_nothing_else(name: str) -> None:
    """The weights of a norm go into the product behind it, so that is what is rounded."""
    target, exact = lean(name), plain(name)
    (said, expected) = (
        each.prefill([PROMPTS[0]], each.new_cache(1), len(PROMPTS[0])).logits
        for each in (target, exact)
    )
    assert distance(said, expected) < 2e-3
    assert torch.equal(said.argmax(-1), expected.argmax(-1))


@pytest.mark.parametrize("quantization", ["float16", "int8"])
def test_a_row_does_not_depend_on_its_neighbours(quantization: str) -> None:
    """With a scale of all rows together, a large row would coarsen the others."""
    target = lean("llama", quantization)
    alone = target.new_cache(1)
    target.prefill([PROMPTS[0]], alone)
    expected = target.forward(pack([7], [DraftTree((), ())]), alone).logits[0, 0]
    for others in ([PROMPTS[1]], [PROMPTS[2], PROMPTS[1]]):
        cache = target.new_cache(1 + len(others))
        target.prefill([PROMPTS[0], *others], cache)
        trees = [TREE] * (1 + len(others))
        found = target.forward(pack([7] * len(trees), trees), cache).logits[0, 0]
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)


def test_the_weights_are_held_once_and_what_heads_read_is_still_there() -> None:
    target, before = lean("llama"), plain("llama")
    assert target.fingerprint == before.fingerprint
    assert (target.quantization, before.quantization) == ("float16", "none")
    left = [
        key
        for key, found in target.model.named_parameters()
        if "layers" in key and found.ndim == 2 and found.numel()
    ]
    assert left == []
    assert len(target.decoder_layers) == len(before.decoder_layers)
    ids = [3, 9, 30]
    states = torch.randn(2, 32)
    torch.testing.assert_close(
        Projection.shared(target, ids).logits(states), Projection.shared(before, ids).logits(states)
    )


def test_layers_that_are_not_there_are_refused_before_anything_runs() -> None:
    target = lean("llama")
    cache = target.new_cache(1)
    with pytest.raises(ConfigError, match="has no decoder layer 7: it has 0 to 1"):
        target.prefill([PROMPTS[0]], cache, 1, (7,))


@pytest.mark.parametrize(
    ("name", "why"),
    [("gemma2", "is of the type gemma2"), ("qwen2-window", "mixes kinds of attention")],
)
def test_models_that_it_cannot_compute_are_refused(name: str, why: str) -> None:
    model = model_of(name)
    assert packing_obstacle(model) == why
    with pytest.raises(ModelError, match=f"cannot be packed as float16: it {why}"):
        LeanTarget(model, name, "float16")
    # Refused, it is as it was.
    assert torch.isfinite(model(input_ids=torch.tensor([[5, 6]])).logits).all()


def test_a_level_behind_another_is_the_same_as_both_at_once() -> None:
    target = lean("qwen3")
    outputs = []
    for split in (False, True):
        cache = target.new_cache(1)
        target.prefill([PROMPTS[0]], cache)
        whole = pack([7], [TREE])
        if not split:
            outputs.append(target.forward(whole, cache).logits)
            continue
        first = TreePass(whole.token_ids[:, :3], whole.depths[:, :3], whole.visible[:, :3, :3])
        rest = TreePass(whole.token_ids[:, 3:], whole.depths[:, 3:], whole.visible[:, 3:])
        parts = [target.forward(part, cache).logits for part in (first, rest)]
        outputs.append(torch.cat(parts, dim=1))
    torch.testing.assert_close(outputs[1], outputs[0], atol=2e-5, rtol=0)
