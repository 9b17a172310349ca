"""The adapter of transformers models: random trees, features, refusals and loading."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM

from specrag.decoding.tree import ROOT, DraftTree, pack
from specrag.errors import ModelError
from specrag.loading import model_loading
from specrag.models import huggingface
from specrag.models.embedded import ModelSource
from specrag.models.huggingface import (
    DTYPES,
    HuggingFaceTarget,
    pick_device,
    pick_dtype,
)
from specrag.models.tiny import tiny_target

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

tokens = st.integers(0, TARGET.vocab_size - 1)
prompts = st.lists(tokens, min_size=1, max_size=9)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads only wait for each other on matrices this small, most of all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@st.composite
def trees(draw: st.DrawFn, max_nodes: int = 7) -> DraftTree:
    edges: dict[tuple[int, int], None] = {}
    for _ in range(draw(st.integers(0, max_nodes))):
        edges.setdefault((draw(st.integers(ROOT, len(edges) - 1)), draw(tokens)))
    return DraftTree(tuple(token for _, token in edges), tuple(parent for parent, _ in edges))


def new_model(kind: str, **options: Any) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **options)).float()


@torch.inference_mode()
def plain_logits(target: HuggingFaceTarget, token_ids: list[int]) -> torch.Tensor:
    logits: torch.Tensor = target.model(input_ids=torch.tensor([token_ids]), use_cache=False).logits
    return logits[0]


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=0)


@given(rows=st.lists(st.tuples(prompts, tokens, trees()), min_size=1, max_size=3))
@settings(max_examples=30, deadline=None)
def test_any_batch_of_trees_equals_the_plain_model_on_each_path(
    rows: list[tuple[list[int], int, DraftTree]],
) -> None:
    cache = TARGET.new_cache(len(rows), 1)
    TARGET.prefill([prompt for prompt, _, _ in rows], cache)
    tree_pass = pack([root for _, root, _ in rows], [tree for _, _, tree in rows])
    logits = TARGET.forward(tree_pass, cache).logits

    for row, (prompt, root, tree) in enumerate(rows):
        for node in range(ROOT, len(tree)):
            path = [*prompt, root, *(tree.token_ids[step] for step in tree.path_to(node))]
            assert_close(logits[row, node + 1], plain_logits(TARGET, path)[-1])


@given(
    rows=st.lists(prompts, min_size=1, max_size=4),
    chunk=st.integers(1, 10),
    num_logits=st.integers(1, 12),
)
@settings(max_examples=30, deadline=None)
def test_any_prefill_equals_the_plain_model(
    rows: list[list[int]], chunk: int, num_logits: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(huggingface, "PREFILL_CHUNK", chunk)
        logits = TARGET.prefill(rows, TARGET.new_cache(len(rows)), num_logits).logits

    assert logits.shape == (len(rows), num_logits, TARGET.vocab_size)
    for row, prompt in enumerate(rows):
        expected = plain_logits(TARGET, prompt)
        wanted = [max(0, len(prompt) - num_logits + i) for i in range(num_logits)]
        assert_close(logits[row], expected[wanted])


def test_a_model_that_returns_all_logits_is_prefilled_alike() -> None:
    target = HuggingFaceTarget(TARGET.model, "untrimmed")
    target._trims_logits = False
    rows = [[5, 6, 7, 8], [9, 10]]

    actual = target.prefill(rows, target.new_cache(2), num_logits=2).logits
    assert_close(actual, TARGET.prefill(rows, TARGET.new_cache(2), num_logits=2).logits)


def test_features_come_from_every_layer_asked_for_and_the_hooks_go() -> None:
    target = tiny_target(num_layers=3)
    target.feature_layers = (2, 0)
    rows = [[5, 6, 7, 8, 9], [10, 11]]
    output = target.prefill(rows, target.new_cache(2), num_logits=2)
    assert not any(layer._forward_hooks for layer in target.model.model.layers)
    with torch.inference_mode():
        plain = [target.model(torch.tensor([row]), output_hidden_states=True) for row in rows]

    assert set(output.features) == {0, 2}
    for row, expected in enumerate(plain):
        assert_close(output.features[0][row], expected.hidden_states[1][0, -2:])
        # transformers lists the last layer's states behind the final norm.
        normed = target.model.model.norm(output.features[2][row])
        assert_close(normed, expected.hidden_states[3][0, -2:])


def test_hooks_go_when_a_pass_fails() -> None:
    target = tiny_target()
    target.feature_layers = (1,)
    with pytest.raises(IndexError):
        target.prefill([[10_000]], target.new_cache(1))

    assert not target.model.model.layers[1]._forward_hooks
    assert target.prefill([[5]], target.new_cache(1)).features[1].shape == (1, 1, 32)


def test_no_features_unless_asked_for() -> None:
    assert TARGET.prefill([[5]], TARGET.new_cache(1)).features == {}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"sliding_window": 24}, 24),
        ({"sliding_window": None}, 64),
        ({"sliding_window": 4096}, 64),
    ],
)
def test_the_context_ends_with_the_sliding_window(options: dict[str, Any], expected: int) -> None:
    target = HuggingFaceTarget(new_model("mistral", **DECODER, **options), "mistral")

    assert target.max_context == expected


def test_a_sliding_window_that_is_switched_off_does_not_count() -> None:
    options = {"sliding_window": 24, "use_sliding_window": False}

    assert HuggingFaceTarget(new_model("qwen2", **DECODER, **options), "q").max_context == 64


def test_the_full_window_of_a_sliding_model_is_exact() -> None:
    model = new_model("mistral", **DECODER, sliding_window=16)
    target = HuggingFaceTarget(model, "mistral")
    rng = random.Random(0)
    prompt = [rng.randrange(40) for _ in range(target.max_context - 3)]
    cache = target.new_cache(1)
    target.prefill([prompt], cache)
    logits = target.forward(pack([5], [DraftTree.from_paths([[6, 7], [8], [9]])]), cache).logits[0]

    for node, path in enumerate([[5], [5, 6], [5, 6, 7], [5, 8], [5, 9]]):
        assert_close(logits[node], plain_logits(target, [*prompt, *path])[-1])


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
    ("kind", "options", "reason"),
    [
        ("mamba", COMMON, "has linear_attention, which cannot be rolled back"),
        ("lfm2", DECODER | {"layer_types": ["conv", "full_attention"]}, "has conv, which cannot"),
        ("bloom", {"vocab_size": 40, "hidden_size": 32, "n_layer": 2, "n_head": 4}, "position_ids"),
        ("mpt", {"vocab_size": 40, "d_model": 32, "n_layers": 2, "n_heads": 4}, "position_ids"),
        ("falcon", COMMON | {"alibi": True}, "ALiBi"),
        (
            "gpt_neo",
            {"vocab_size": 40, "hidden_size": 32, "num_layers": 2, "num_heads": 4}
            | {"attention_types": [[["global", "local"], 1]]},
            "counts a window in cache slots",
        ),
        ("openai-gpt", {"vocab_size": 40, "n_embd": 32, "n_layer": 2, "n_head": 4}, "no cache"),
    ],
)
def test_an_architecture_that_trees_would_corrupt_is_refused_with_the_reason(
    kind: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ModelError, match=reason) as caught:
        HuggingFaceTarget(new_model(kind, **options), "mine")

    assert "'mine'" in caught.value.message
    assert "such as Llama" in str(caught.value.hint)


def test_an_encoder_decoder_is_refused() -> None:
    model = new_model("llama", **DECODER)
    model.config.is_encoder_decoder = True

    with pytest.raises(ModelError, match="has an encoder"):
        HuggingFaceTarget(model, "t5")


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


def test_a_new_cache_is_no_larger_than_the_context() -> None:
    assert TARGET.new_cache(2, 10_000).capacity == TARGET.max_context
    assert TARGET.new_cache(2, 10).capacity == 10


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "", "ipu"])
def test_an_unusable_device_is_named_with_what_is_allowed(device: str) -> None:
    with pytest.raises(ModelError, match=f"cannot use the device '{device}'") as caught:
        pick_device(device)

    assert "auto, cpu" in str(caught.value.hint)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_missing_gpu_is_told_before_anything_is_loaded() -> None:
    with pytest.raises(ModelError, match="cannot use the device 'cuda'"):
        HuggingFaceTarget.load(ModelSource("/nowhere", None, "m"), "m", device="cuda")


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
    monkeypatch.setattr(huggingface, "_cpu_has_bfloat16", lambda: has_bfloat16)

    assert pick_dtype("auto", torch.device(device)) == expected


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A tiny model in transformers' format."""
    with model_loading():
        tiny_target().model.save_pretrained(tmp_path)
    return tmp_path


def load(path: Path, dtype: str = "float32") -> HuggingFaceTarget:
    return HuggingFaceTarget.load(ModelSource(str(path), None, "m"), "m", dtype=dtype, device="cpu")


def test_a_saved_model_loads_as_it_was(saved: Path) -> None:
    target = load(saved)

    assert target.dtype == torch.float32
    assert not target.model.training
    assert_close(plain_logits(target, [5, 6, 7]), plain_logits(TARGET, [5, 6, 7]))
    assert load(saved, "bfloat16").dtype == torch.bfloat16


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: half(folder / "model.safetensors"),
        lambda folder: (folder / "model.safetensors").unlink(),
        lambda folder: (folder / "config.json").unlink(),
        lambda folder: half(folder / "config.json"),
        lambda folder: (folder / "config.json").write_text('{"model_type": "nope"}'),
        lambda folder: (folder / "config.json").write_text('{"model_type": "t5"}'),
    ],
    ids=["cut weights", "no weights", "no config", "cut config", "unknown kind", "no causal LM"],
)
def test_a_folder_that_cannot_be_read_is_a_model_error(
    saved: Path, damage: Callable[[Path], Any]
) -> None:
    damage(saved)

    with pytest.raises(ModelError, match="cannot load the model 'm'") as caught:
        load(saved)
    assert "local folder" in str(caught.value.hint)
    assert "\n" not in caught.value.message


def test_loading_leaves_the_settings_of_transformers_as_they_were(saved: Path) -> None:
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    load(saved)

    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
