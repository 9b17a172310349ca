"""The target that takes trees: random trees, whole and level by level, and random prefills."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.decoding.tree import ROOT, DraftTree, pack
from specrag.errors import ModelError
from specrag.models import huggingface
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.tiny import tiny_target
from specrag.models.transformers_target import TransformersTarget
from tests.architectures import PLAIN, WINDOW, new_model, target_of
from tests.levels import passes_of

TARGET = tiny_target()

tokens = st.integers(0, 39)
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


@torch.inference_mode()
def plain_logits(target: TransformersTarget, token_ids: list[int]) -> torch.Tensor:
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


@given(data=st.data(), rows=st.lists(st.tuples(prompts, tokens, trees()), min_size=1, max_size=3))
@settings(max_examples=40, deadline=None)
def test_any_tree_grown_level_by_level_equals_one_pass(
    data: st.DataObject, rows: list[tuple[list[int], int, DraftTree]]
) -> None:
    texts = [list(prompt) for prompt, _, _ in rows]
    roots, grown = [root for _, root, _ in rows], [tree for _, _, tree in rows]
    num_cuts = data.draw(st.integers(0, 4))
    cuts = [
        sorted(data.draw(st.integers(1, 1 + len(tree))) for _ in range(num_cuts)) for tree in grown
    ]
    passes, places = passes_of(roots, grown, cuts)
    target = target_of("llama")
    caches = [target.new_cache(len(rows), 1) for _ in range(2)]
    for cache in caches:
        target.prefill(texts, cache)
    whole = target.forward(pack(roots, grown), caches[0]).logits
    logits = torch.cat([target.forward(part, caches[1]).logits for part in passes], dim=1)
    paths = []
    for row, tree in enumerate(grown):
        torch.testing.assert_close(
            logits[row, places[row]], whole[row, : 1 + len(tree)], atol=1e-5, rtol=1e-5
        )
        path = [
            0,
            *(1 + node for node in tree.path_to(data.draw(st.integers(ROOT, len(tree) - 1)))),
        ]
        paths.append(path)
    caches[0].commit(paths)
    caches[1].commit([[places[row][node] for node in path] for row, path in enumerate(paths)])
    assert caches[0].lengths == caches[1].lengths
    after = [target.forward(pack(roots, grown), cache).logits for cache in caches]
    for row, tree in enumerate(grown):
        used = range(1 + len(tree))
        torch.testing.assert_close(after[0][row, used], after[1][row, used], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["mistral-window", "gemma2"])
@given(
    rows=st.lists(
        st.tuples(st.lists(tokens, min_size=1, max_size=3 * WINDOW), tokens, trees(12)),
        min_size=1,
        max_size=2,
    ),
    chunk=st.integers(1, 20),
)
@settings(max_examples=15, deadline=None)
def test_a_window_counts_positions_in_the_text(
    name: str, rows: list[tuple[list[int], int, DraftTree]], chunk: int
) -> None:
    target = target_of(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(huggingface, "PREFILL_CHUNK", chunk)
        cache = target.new_cache(len(rows))
        target.prefill([prompt for prompt, _, _ in rows], cache)
    tree_pass = pack([root for _, root, _ in rows], [tree for _, _, tree in rows])
    logits = target.forward(tree_pass, cache).logits

    for row, (prompt, root, tree) in enumerate(rows):
        for node in {ROOT, len(tree) - 1, *range(0, len(tree), 3)}:
            path = [*prompt, root, *(tree.token_ids[step] for step in tree.path_to(node))]
            assert_close(logits[row, node + 1], plain_logits(target, path)[-1])


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


def test_a_new_cache_is_no_larger_than_the_context() -> None:
    assert TARGET.new_cache(2, 10_000).capacity == TARGET.max_context
    assert TARGET.new_cache(2, 10).capacity == 10


@pytest.mark.parametrize("name", PLAIN)
def test_an_architecture_that_trees_would_corrupt_is_refused_with_the_reason(name: str) -> None:
    plain = target_of(name)

    with pytest.raises(ModelError, match="'mine' cannot evaluate a tree of drafts") as caught:
        HuggingFaceTarget(plain.model, "mine")
    assert plain.no_speculation in caught.value.message
    assert "without speculation" in str(caught.value.hint)


def test_the_context_ends_with_a_window_that_no_mask_can_tell() -> None:
    options = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2}
    model = new_model("gpt_neox", **options, num_attention_heads=4, intermediate_size=48)
    assert HuggingFaceTarget(model, "m").max_context == 2048
    model.config.sliding_window = 24

    assert HuggingFaceTarget(model, "m").max_context == 24
