"""What every target must keep to: each pass equals the plain model on each path, without a cache.

The oracle is the plain transformers forward over one whole sequence at a time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from specrag.decoding.tree import ROOT, DraftTree, pack
from specrag.models import huggingface
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.kv_cache import KVCache
from specrag.models.target import TargetModel
from specrag.models.tiny import tiny_target

VOCAB = 40
COMMON = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GPT2 = {"vocab_size": VOCAB, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64} | {
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
LATENT = {"q_lora_rank": 16, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8} | {
    "num_key_value_heads": 4,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
}
SLIDING = {"head_dim": 8, "sliding_window": 48}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": None},
    "qwen2": {},
    "qwen3": {"head_dim": 8},
    "qwen3_moe": {"head_dim": 8} | EXPERTS,
    "phi3": {},
    "olmo2": {},
    "granite": {},
    "gemma2": SLIDING,
    "gemma3_text": SLIDING,
    "deepseek_v3": LATENT,
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
}


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads only wait for each other on matrices this small, most of all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def target_of(name: str) -> HuggingFaceTarget:
    if name == "tiny":
        return tiny_target(vocab_size=VOCAB)
    options = GPT2 if name == "gpt2" else COMMON | ARCHITECTURES.get(name, {})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **options)).float()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0.0, 0.3)
    return HuggingFaceTarget(model, name)


every_target = pytest.mark.parametrize("name", ["tiny", "gpt2", "gpt_neox", *ARCHITECTURES])


@torch.inference_mode()
def plain_logits(target: HuggingFaceTarget, token_ids: Sequence[int]) -> torch.Tensor:
    """The model's own logits ``[length, vocab]``, with neither cache nor mask of ours."""
    logits: torch.Tensor = target.model(input_ids=torch.tensor([token_ids]), use_cache=False).logits
    return logits[0]


def words(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(3, VOCAB) for _ in range(count)]


def random_tree(rng: random.Random, num_nodes: int) -> DraftTree:
    edges: dict[tuple[int, int], None] = {}
    while len(edges) < num_nodes:
        edges.setdefault((rng.randrange(ROOT, len(edges)), rng.randrange(3, VOCAB)))
    return DraftTree(tuple(token for _, token in edges), tuple(parent for parent, _ in edges))


def prefilled(target: TargetModel, prompts: Sequence[Sequence[int]], capacity: int = 4) -> KVCache:
    cache = target.new_cache(len(prompts), capacity)
    target.prefill(prompts, cache)
    return cache


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=0)


@every_target
@pytest.mark.parametrize("chunk", [512, 4])
def test_prefill_equals_the_plain_model(
    name: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface, "PREFILL_CHUNK", chunk)
    target, rng = target_of(name), random.Random(name)
    prompts = [words(rng, count) for count in (11, 2, 8)]
    cache = target.new_cache(3, 4)
    logits = target.prefill(prompts, cache, num_logits=6).logits

    assert cache.lengths == (11, 2, 8)
    cache.check_integrity()
    for row, prompt in enumerate(prompts):
        expected = plain_logits(target, prompt)[-6:]
        assert_close(logits[row, 6 - len(expected) :], expected)
        for repeated in logits[row, : 6 - len(expected)]:
            assert_close(repeated, expected[0])


@every_target
def test_every_node_of_every_tree_equals_the_plain_model_on_its_path(name: str) -> None:
    target, rng = target_of(name), random.Random(name)
    texts = [words(rng, count) for count in (9, 4, 13)]
    cache = prefilled(target, texts)
    for _ in range(2):
        roots = words(rng, 3)
        trees = [random_tree(rng, count) for count in (6, 3, 0)]
        logits = target.forward(pack(roots, trees), cache).logits
        paths = []
        for row, (text, root, tree) in enumerate(zip(texts, roots, trees, strict=True)):
            nodes = range(ROOT, len(tree))
            for node in nodes:
                path = [*text, root, *(tree.token_ids[step] for step in tree.path_to(node))]
                assert_close(logits[row, node + 1], plain_logits(target, path)[-1])
            kept = tree.path_to(rng.choice(nodes))
            paths.append([0, *(node + 1 for node in kept)])
            text += [root, *(tree.token_ids[node] for node in kept)]
        cache.commit(paths)
        cache.check_integrity()
        assert cache.lengths == tuple(len(text) for text in texts)


@every_target
def test_a_committed_path_leaves_the_cache_of_a_fresh_prefill(name: str) -> None:
    target, rng = target_of(name), random.Random(name)
    prompts, roots = [words(rng, 5), words(rng, 3)], words(rng, 2)
    # The accepted nodes 1, 2 and 4 do not lie side by side, so committing has to move them.
    tree = DraftTree((7, 8, 9, 10, 11), (ROOT, ROOT, 1, ROOT, 2))
    cache = prefilled(target, prompts)
    target.forward(pack(roots, [tree, tree]), cache)
    cache.commit([[0, 2, 3, 5], [0, 1]])

    accepted = [[roots[0], 8, 9, 11], [roots[1], 7]]
    texts = [[*prompt, *tokens] for prompt, tokens in zip(prompts, accepted, strict=True)]
    fresh = prefilled(target, texts)
    for committed, expected in zip(cache.layers, fresh.layers, strict=True):
        for row, text in enumerate(texts):
            assert_close(committed.keys[row, :, : len(text)], expected.keys[row, :, : len(text)])
            assert_close(
                committed.values[row, :, : len(text)], expected.values[row, :, : len(text)]
            )


@every_target
def test_an_abandoned_pass_a_rollback_and_lost_rows_leave_no_trace(name: str) -> None:
    target, rng = target_of(name), random.Random(name)
    texts = [words(rng, count) for count in (8, 5, 6)]
    cache = prefilled(target, texts)
    target.forward(pack(words(rng, 3), [random_tree(rng, 5)] * 3), cache)
    cache.rollback([6, 5, 1])
    cache.select_rows([2, 0])
    logits = target.forward(pack([20, 21], [DraftTree(), DraftTree.chain([22])]), cache).logits

    assert_close(logits[0, 0], plain_logits(target, [texts[2][0], 20])[-1])
    assert_close(logits[1, :2], plain_logits(target, [*texts[0][:6], 21, 22])[-2:])


@every_target
def test_prefill_goes_on_where_the_cache_ends(name: str) -> None:
    target, rng = target_of(name), random.Random(name)
    # The padding of the nearly full row must not lie at positions behind the context.
    first, second = [words(rng, 60), words(rng, 2)], [words(rng, 2), words(rng, 30)]
    if target.max_context < 64:
        first[0] = first[0][:40]
    cache = prefilled(target, first)
    logits = target.prefill(second, cache).logits

    for row, text in enumerate([[*a, *b] for a, b in zip(first, second, strict=True)]):
        assert_close(logits[row, 0], plain_logits(target, text)[-1])


@every_target
def test_the_features_of_a_layer_are_the_hidden_states_that_left_it(name: str) -> None:
    target, rng = target_of(name), random.Random(name)
    prompt, root = words(rng, 6), 5
    cache = target.new_cache(1)
    target.feature_layers = (0,)
    try:
        prefill = target.prefill([prompt], cache, num_logits=3)
        tree_pass = target.forward(pack([root], [DraftTree.chain([6, 7])]), cache)
    finally:
        target.feature_layers = ()
    with torch.inference_mode():
        hidden = target.model(
            input_ids=torch.tensor([[*prompt, root, 6, 7]]), output_hidden_states=True
        ).hidden_states[1]

    assert set(prefill.features) == set(tree_pass.features) == {0}
    assert_close(prefill.features[0], hidden[:, 3:6])
    assert_close(tree_pass.features[0], hidden[:, 6:])


@every_target
def test_a_target_describes_itself(name: str) -> None:
    target = target_of(name)

    assert target.vocab_size == VOCAB
    assert target.max_context > 0
    assert target.fingerprint == target.fingerprint
    assert all(0 <= token < VOCAB for token in target.eos_token_ids)
