"""What every target must keep to: each pass equals the plain model on each path, without a cache.

The oracle is the plain transformers forward over one whole sequence at a time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
import torch

from specrag.decoding.tree import ROOT, DraftTree, pack
from specrag.errors import ConfigError
from specrag.models import huggingface
from specrag.models.kv_cache import KVCache
from specrag.models.target import FINAL_NORM, TargetModel, TreePass
from specrag.models.transformers_target import TransformersTarget
from tests.architectures import EVERY, PLAIN, SPECULATING, VOCAB, target_of
from tests.levels import passes_of


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads only wait for each other on matrices this small, most of all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


every_target = pytest.mark.parametrize("name", EVERY)
every_tree_target = pytest.mark.parametrize("name", ["tiny", *SPECULATING])
every_plain_target = pytest.mark.parametrize("name", PLAIN)


@torch.inference_mode()
def plain_logits(target: TransformersTarget, texts: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    """The model's own logits ``[length, vocab]`` of each text, with no cache or mask of ours.

    Texts lie in one batch, filled up behind their ends, which no token before can see.
    """
    width = max(map(len, texts))
    padded = torch.tensor([[*text, *([0] * (width - len(text)))] for text in texts])
    logits = target.model(input_ids=padded, use_cache=False).logits
    return [row[: len(text)] for row, text in zip(logits, texts, strict=True)]


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


@torch.inference_mode()
def hidden_states(target: TransformersTarget, token_ids: Sequence[int]) -> dict[int, torch.Tensor]:
    """What transformers itself says of the first layer and of the final norm."""
    listed = target.model(
        input_ids=torch.tensor([token_ids]), use_cache=False, output_hidden_states=True
    ).hidden_states
    first = 0 if target.name == "mamba" else 1  # most list the embeddings first
    return {0: listed[first][0], FINAL_NORM: listed[-1][0]}


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=0)


def assert_last(
    target: TransformersTarget, logits: torch.Tensor, texts: Sequence[Sequence[int]]
) -> None:
    """Compares logits ``[batch, 1, vocab]`` with those behind whole texts."""
    expected = [plain[-1:] for plain in plain_logits(target, texts)]
    assert_close(logits, torch.stack(expected))


@every_target
@pytest.mark.parametrize("chunk", [512, 4])
def test_prefill_equals_the_plain_model(
    name: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface, "PREFILL_CHUNK", chunk)
    target, rng = target_of(name), random.Random(name)
    prompts = [words(rng, count) for count in (27, 2, 19)]
    cache = target.new_cache(3, 4)
    logits = target.prefill(prompts, cache, num_logits=6).logits

    assert cache.lengths == (27, 2, 19)
    cache.check_integrity()
    for row, plain in enumerate(plain_logits(target, prompts)):
        expected = plain[-6:]
        assert_close(logits[row, 6 - len(expected) :], expected)
        for repeated in logits[row, : 6 - len(expected)]:
            assert_close(repeated, expected[0])


@every_tree_target
def test_every_node_of_every_tree_equals_the_plain_model_on_its_path(name: str) -> None:
    target, rng = target_of(name), random.Random(name)
    texts = [words(rng, count) for count in (23, 4, 13)]
    cache = prefilled(target, texts)
    for _ in range(2):
        roots = words(rng, 3)
        trees = [random_tree(rng, count) for count in (6, 3, 0)]
        logits = target.forward(pack(roots, trees), cache).logits
        paths = []
        for row, (text, root, tree) in enumerate(zip(texts, roots, trees, strict=True)):
            nodes = range(ROOT, len(tree))
            routes = [[tree.token_ids[step] for step in tree.path_to(node)] for node in nodes]
            plain = plain_logits(target, [[*text, root, *route] for route in routes])
            expected = torch.stack([of_path[-1] for of_path in plain])
            assert_close(logits[row, : len(expected)], expected)
            kept = tree.path_to(rng.choice(nodes))
            paths.append([0, *(node + 1 for node in kept)])
            text += [root, *(tree.token_ids[node] for node in kept)]
        cache.commit(paths)
        cache.check_integrity()
        assert cache.lengths == tuple(len(text) for text in texts)


@every_tree_target
def test_a_tree_evaluated_in_parts_equals_one_pass(name: str) -> None:
    target, rng = target_of(name), random.Random(name)
    texts, roots = [words(rng, count) for count in (14, 3, 9)], words(rng, 3)
    trees = [random_tree(rng, count) for count in (9, 4, 1)]
    whole = target.forward(pack(roots, trees), prefilled(target, texts), (0,))
    passes, places = passes_of(roots, trees, [[1, 4, 6], [1, 3, 3], [2, 2, 2]])
    cache = prefilled(target, texts)
    outputs = [target.forward(part, cache, (0,)) for part in passes]
    logits = torch.cat([output.logits for output in outputs], dim=1)
    features = torch.cat([output.features[0] for output in outputs], dim=1)

    assert cache.num_pending == logits.shape[1] == sum(p.token_ids.shape[1] for p in passes)
    paths = []
    for row, tree in enumerate(trees):
        nodes = range(1 + len(tree))
        assert_close(logits[row, places[row]], whole.logits[row, nodes])
        assert_close(features[row, places[row]], whole.features[0][row, nodes])
        path = [0, *(node + 1 for node in tree.path_to(len(tree) - 1))]
        paths.append([places[row][node] for node in path])
        texts[row] += [roots[row], *(tree.token_ids[node - 1] for node in path[1:])]
    cache.commit(paths)
    cache.check_integrity()
    after = target.forward(pack([5, 6, 7], [DraftTree()] * 3), cache).logits
    assert_last(target, after, [[*text, 5 + row] for row, text in enumerate(texts)])


@every_tree_target
def test_a_pass_that_keeps_only_some_pending_nodes_is_refused(name: str) -> None:
    target = target_of(name)
    cache = prefilled(target, [[5, 6]])
    target.forward(pack([7], [DraftTree.chain([8])]), cache)
    visible = torch.ones(1, 1, 2, dtype=torch.bool)
    tokens = torch.zeros(1, 1, dtype=torch.long)

    with pytest.raises(ValueError, match="cannot keep 1 of 2 pending nodes"):
        target.forward(TreePass(tokens, tokens, visible), cache)


@every_tree_target
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


@every_tree_target
def test_an_abandoned_pass_a_rollback_and_lost_rows_leave_no_trace(name: str) -> None:
    target, rng = target_of(name), random.Random(name)
    texts = [words(rng, count) for count in (18, 5, 6)]
    cache = prefilled(target, texts)
    target.forward(pack(words(rng, 3), [random_tree(rng, 5)] * 3), cache)
    cache.rollback([16, 5, 1])
    cache.select_rows([2, 0])
    logits = target.forward(pack([20, 21], [DraftTree(), DraftTree.chain([22])]), cache).logits

    first, second = plain_logits(target, [[texts[2][0], 20], [*texts[0][:16], 21, 22]])
    assert_close(logits[0, 0], first[-1])
    assert_close(logits[1, :2], second[-2:])


@every_target
def test_rows_are_decoded_plainly_while_others_leave_repeat_and_join(name: str) -> None:
    target, rng = target_of(name), random.Random(name)
    texts = [words(rng, count) for count in (5, 17, 9)]
    cache = prefilled(target, texts)

    def decode(steps: int) -> None:
        for _ in range(steps):
            roots = words(rng, len(texts))
            for text, root in zip(texts, roots, strict=True):
                text.append(root)
            logits = target.forward(pack(roots, [DraftTree()] * len(roots)), cache).logits
            cache.commit([[0]] * len(roots))
            assert cache.lengths == tuple(map(len, texts))
            assert_last(target, logits, texts)

    decode(2)
    cache.select_rows([2, 1, 2, 2])
    texts = [list(texts[row]) for row in (2, 1, 2, 2)]
    decode(2)
    fresh = [words(rng, 30), words(rng, 1)]
    cache.join(prefilled(target, fresh))
    texts += fresh
    decode(2)
    cache.rollback(cache.lengths)
    cache.check_integrity()
    cache.select_rows([])
    cache.join(prefilled(target, [[7, 8]], capacity=1))
    texts = [[7, 8]]
    decode(1)


@every_target
def test_what_was_not_committed_or_rolled_back_is_decoded_again(name: str) -> None:
    target = target_of(name)
    cache = prefilled(target, [[5, 6, 7, 8], [9, 10]])
    none = [DraftTree()] * 2
    target.forward(pack([11, 12], none), cache)  # abandoned
    target.forward(pack([13, 14], none), cache)
    cache.commit([[0], []])
    cache.rollback([3, 1])
    logits = target.forward(pack([15, 16], none), cache).logits

    assert_last(target, logits, [[5, 6, 7, 15], [9, 16]])


@every_tree_target
def test_an_imported_row_goes_on_as_the_row_it_was_exported_from(name: str) -> None:
    target, rng = target_of(name), random.Random(name)
    text = words(rng, 25)
    states = prefilled(target, [words(rng, 3), text]).export_row(1, 21)
    cache = target.new_cache(2)
    cache.import_row(1, states)
    logits = target.prefill([[5, 6], text[21:]], cache).logits

    assert cache.lengths == (2, 25)
    assert_last(target, logits, [[5, 6], text])


@every_plain_target
def test_a_model_that_only_decodes_says_why_and_refuses_trees(name: str) -> None:
    target = target_of(name)
    cache = prefilled(target, [[5, 6]])

    assert target.no_speculation
    with pytest.raises(ValueError, match="one token of each row a pass") as caught:
        target.forward(pack([7], [DraftTree.chain([8])]), cache)
    assert target.no_speculation in str(caught.value)


@every_tree_target
def test_a_model_that_takes_trees_speculates(name: str) -> None:
    assert target_of(name).no_speculation == ""


@every_target
def test_prefill_goes_on_where_the_cache_ends(name: str) -> None:
    target, rng = target_of(name), random.Random(name)
    # The padding of the nearly full row must not lie at positions behind the context.
    first, second = [words(rng, 93), words(rng, 2)], [words(rng, 3), words(rng, 30)]
    cache = prefilled(target, first)
    logits = target.prefill(second, cache).logits

    assert_last(target, logits, [[*a, *b] for a, b in zip(first, second, strict=True)])


@every_target
def test_the_features_of_a_layer_are_the_hidden_states_that_left_it(name: str) -> None:
    target, rng = target_of(name), random.Random(name)
    prompt, root = words(rng, 6), 5
    cache = target.new_cache(1)
    prefill = target.prefill([prompt], cache, num_logits=3, feature_layers=(0, FINAL_NORM))
    first = target.forward(pack([root], [DraftTree()]), cache, (0, FINAL_NORM))
    cache.commit([[0]])
    second = target.forward(pack([6], [DraftTree()]), cache, (0, FINAL_NORM))
    bare = target.forward(pack([6], [DraftTree()]), cache)
    hidden = hidden_states(target, [*prompt, root, 6])

    assert set(prefill.features) == set(first.features) == {0, FINAL_NORM}
    for layer in (0, FINAL_NORM):
        assert_close(prefill.features[layer][0], hidden[layer][:6])
        assert_close(first.features[layer][0], hidden[layer][6:7])
        assert_close(second.features[layer][0], hidden[layer][7:])
    assert bare.features == {}


@every_target
def test_features_of_a_prefill_are_those_of_every_position(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface, "PREFILL_CHUNK", 4)
    target, rng = target_of(name), random.Random(name)
    first, second = [words(rng, 3), words(rng, 7)], [words(rng, 9), words(rng, 2)]
    cache = prefilled(target, first)
    features = target.prefill(second, cache, feature_layers=(FINAL_NORM, 0)).features

    for row, (before, new) in enumerate(zip(first, second, strict=True)):
        hidden = hidden_states(target, [*before, *new])
        for layer, states in features.items():
            assert states.shape[:2] == (2, 9)
            assert_close(states[row, : len(new)], hidden[layer][len(before) :])


@every_target
@pytest.mark.parametrize("layer", [-2, 99])
def test_a_layer_that_is_not_there_is_refused_before_anything_runs(name: str, layer: int) -> None:
    target = target_of(name)
    cache, modules = target.new_cache(1), list(target.model.modules())
    before = [len(module._forward_hooks) for module in modules]  # transformers leaves its own
    with pytest.raises(ConfigError, match=rf"no decoder layer {layer}: it has 0 to [12], and -1"):
        target.prefill([[5, 6]], cache, feature_layers=(0, layer))

    assert cache.lengths == (0,)
    assert [len(module._forward_hooks) for module in modules] == before


@every_target
def test_a_target_describes_itself(name: str) -> None:
    target = target_of(name)

    assert target.vocab_size == VOCAB
    assert target.max_context > 0
    assert target.fingerprint == target.fingerprint
    assert all(0 <= token < VOCAB for token in target.eos_token_ids)
