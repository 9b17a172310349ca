"""Drafts of EAGLE heads against a slow oracle, over rounds of accepted and rejected drafts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.decoding.budget import DraftBudget
from specrag.decoding.drafter import DraftContext
from specrag.decoding.tree import DraftTree
from specrag.drafters.eagle import EagleDrafter
from specrag.drafters.heads.eagle import EagleHead
from specrag.drafters.heads.eagle3 import Eagle3Head
from specrag.drafters.neural import head_cache
from specrag.drafters.neural.head_session import HeadOptions, HeadSession
from specrag.drafters.trees.tree_shape import TreeShape
from specrag.errors import ConfigError
from tests.drafters.kit import TOKENIZER, VOCAB, context, prompt, target
from tests.drafters.reading import eagle_heads, features_of, opened
from tests.oracles.eagle2 import Path, eagle2_tree
from tests.oracles.eagle_draft import EagleOracle

SOME = tuple(range(3, VOCAB, 3))
HEADS: dict[str, dict[str, Any]] = {
    "eagle3": {},
    "eagle3, trimmed": {"ids": SOME, "norm_before_fc": True},
    "eagle3, all else": {
        "ids": SOME,
        "num_layers": 2,
        "layer": {"qk_norm": True, "qkv_bias": True, "output_bias": True, "mlp_bias": True},
        "norm_before_residual": True,
        "norm_output": True,
        "fc_norm": True,
        "fc_bias": True,
        "own_embedding": True,
        "own_lm_head": True,
        "draft_vocab_size": len(SOME),
    },
    "eagle2": {"generation": 2},
    "eagle2, deep": {"generation": 2, "num_layers": 2, "input_norms": True, "final_norm": True},
    "short memory": {"layer": {"max_positions": 4}},
}
every_head = pytest.mark.parametrize("name", HEADS)
ALL = HeadOptions(min_confidence=0.0)
WIDE = DraftBudget(5, 3, 2)


@cache
def head_of(name: str) -> EagleHead | Eagle3Head:
    """Its norms and biases are random too."""
    head = eagle_heads(3, **{key: value for key, value in HEADS[name].items() if key != "ids"})
    draw = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in head.parameters():
            if parameter.ndim == 1:
                parameter.uniform_(0.2, 1.5, generator=draw)
    return head


@cache
def made(name: str, options: HeadOptions = ALL) -> EagleDrafter:
    ids = HEADS[name].get("ids")
    known = None if ids is None else torch.tensor(ids)
    drafter = EagleDrafter(head_of(name), known, options=options)
    drafter.bind(target(), TOKENIZER)
    return drafter


@cache
def oracle_of(name: str, prompt_ids: tuple[int, ...]) -> EagleOracle:
    head, ids = head_of(name), HEADS[name].get("ids", range(VOCAB))
    tensors = {key: value.detach() for key, value in head.state_dict().items()}
    model = target().model
    embedding = tensors.get("embed_tokens.weight", model.model.embed_tokens.weight.detach())
    if "lm_head.weight" in tensors:
        return EagleOracle(head.config, tensors, embedding, tensors["lm_head.weight"], ids)
    # Of the target's LM head, the tokens of the prompt are read too.
    ids = sorted({*ids, *prompt_ids})
    return EagleOracle(head.config, tensors, embedding, model.lm_head.weight.detach()[ids], ids)


def begun(
    drafter: EagleDrafter, contexts: Sequence[DraftContext], blocks: Sequence[Sequence[Path]]
) -> HeadSession:
    session = opened(drafter, contexts, blocks)
    assert isinstance(session, HeadSession)
    return session


def states_of(text: Sequence[int], layers: Sequence[int]) -> list[list[torch.Tensor]]:
    found = features_of(tuple(text), tuple(layers))
    return [[found[layer][at] for layer in layers] for at in range(len(text))]


def expected(
    name: str,
    prompt_ids: tuple[int, ...],
    text: Sequence[int],
    budget: DraftBudget,
    ahead: Path = (),
) -> dict[Path, float]:
    oracle = oracle_of(name, prompt_ids)
    states = states_of(text[:-1], made(name).feature_layers)

    @cache
    def log_probs(path: Path) -> list[float]:
        return oracle.log_probs(text, states, (*ahead, *path))

    nodes, depth, branching = budget.num_speculative_tokens, budget.max_depth, budget.branching
    return eagle2_tree(log_probs, nodes, depth, branching, branching)


def paths(tree: DraftTree) -> dict[Path, float]:
    found = {}
    for node, confidence in enumerate(tree.confidences):
        found[tuple(tree.token_ids[n] for n in tree.path_to(node))] = confidence
    return found


def assert_drafted(tree: DraftTree, wanted: dict[Path, float]) -> None:
    assert len(paths(tree)) == len(tree) == len(wanted)
    # The head turns positions in float32: of an unlikely path the fourth digit differs.
    assert paths(tree) == pytest.approx({path: math.exp(s) for path, s in wanted.items()}, rel=2e-3)


budgets = st.builds(DraftBudget, st.integers(1, 5), st.integers(1, 3), st.integers(1, 2))
rounds = st.lists(
    st.tuples(budgets, st.integers(0, 3), st.integers(4, VOCAB - 1)), min_size=1, max_size=3
)


@every_head
@given(start=st.integers(0, 30), played=rounds)
@settings(max_examples=3, deadline=None)
def test_every_round_drafts_what_the_whole_text_read_anew_says(
    name: str, start: int, played: list[tuple[DraftBudget, int, int]]
) -> None:
    drafter = made(name)
    text = [*prompt(start), 9]
    session = begun(drafter, [context(prompt(start))], [[(9,)]])
    for budget, accepted, token in played:
        (tree,) = session.propose([0], [budget])
        assert_drafted(tree, expected(name, prompt(start), text, budget))
        node = max(range(len(tree)), key=lambda n: len(tree.path_to(n)))
        said = [tree.token_ids[n] for n in tree.path_to(node)[:accepted]]
        commit(session, drafter, text, [*said, token])
    assert_drafted(session.propose([0], [WIDE])[0], expected(name, prompt(start), text, WIDE))
    assert session.cache.lengths() == {0: len(text) - 1}


def commit(
    session: HeadSession, drafter: EagleDrafter, text: list[int], tokens: Sequence[int]
) -> None:
    known = len(text) - 1
    text += tokens
    found = features_of(tuple(text[:-1]), drafter.feature_layers)
    session.observe(0, tokens, {layer: states[known:] for layer, states in found.items()})


def test_drafts_on_keys_of_the_heads_own_states_would_be_seen() -> None:
    """The fault that the oracle is for: an accepted draft keeps the keys it was drafted with."""
    drafter, oracle = made("eagle2"), oracle_of("eagle2", prompt(3))
    text = [*prompt(3), 9]
    session = begun(drafter, [context(prompt(3))], [[(9,)]])
    (tree,) = session.propose([0], [DraftBudget(2, 2, 1)])
    before, known = list(text), len(text) - 1
    text += [*tree.token_ids, 11]
    states = states_of(before[:-1], drafter.feature_layers)
    right = features_of(tuple(text[:-1]), drafter.feature_layers)[-1][known:]
    own = [oracle.said(before, states, tree.token_ids[:n])[1] for n in (0, 1)]
    session.observe(0, text[known + 1 :], {-1: torch.stack([*own, right[-1]])})

    stale, wanted = session.propose([0], [WIDE])[0], expected("eagle2", prompt(3), text, WIDE)
    with pytest.raises(AssertionError):
        assert_drafted(stale, wanted)


@pytest.mark.parametrize("name", ["eagle3, trimmed", "eagle2, deep", "short memory"])
def test_drafts_behind_assumed_tokens_stand_behind_the_heads_own_states(name: str) -> None:
    drafter = made(name)
    said: list[list[Path]] = [[(9, 8, 7)], [(5,)], [(6, 31)]]
    aheads: list[Path] = [(12, 40), (), (33,)]
    session = begun(drafter, [context(prompt(n)) for n in range(3)], said)
    budget = DraftBudget(4, 2, 2)
    for order in ([0, 1, 2], [2, 0]):
        asked = [aheads[row] for row in order]
        trees = session.propose_after(order, [budget] * len(order), asked)
        for row, tree in zip(order, trees, strict=True):
            text = [*prompt(row), *said[row][0]]
            assert_drafted(tree, expected(name, prompt(row), text, budget, aheads[row]))


@pytest.mark.parametrize("chunk", [1, 3])
def test_texts_may_be_read_in_pieces(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(head_cache, "_CHUNK", chunk)
    prompts = [prompt(4)[:1], prompt(2), prompt(7)]  # of different lengths
    for name in ("eagle3", "short memory"):
        session = begun(made(name), [context(p) for p in prompts], [[(9,)]] * 3)
        found = session.propose([0, 1, 2], [WIDE] * 3)
        for tree, before in zip(found, prompts, strict=True):
            assert_drafted(tree, expected(name, before, [*before, 9], WIDE))


def test_only_as_much_is_seen_as_the_head_was_trained_on() -> None:
    drafter = made("short memory")
    texts = [[*range(30, 42), 5], [*range(50, 62), 5]]
    texts[1][-4:] = texts[0][-4:]
    features = features_of(tuple(texts[0][:-1]), drafter.feature_layers)
    session = drafter.open([context(text[:-1]) for text in texts])
    session.observe(0, texts[0][-1:], features)
    # Another text up to where the memory begins, for the deepest of two levels as for the first.
    other = {layer: states.clone() for layer, states in features.items()}
    for states in other.values():
        states[:-3] = states[:-3].flip(0)
    session.observe(1, texts[1][-1:], other)

    first, second = session.propose([0, 1], [WIDE, WIDE])
    assert len(first) == WIDE.num_speculative_tokens
    assert first.token_ids != second.token_ids or first.confidences != second.confidences
    other = {
        layer: torch.cat([states[:-4].flip(0), states[-4:]]) for layer, states in features.items()
    }
    session.join(context(texts[1][:-1]))
    session.observe(2, texts[1][-1:], other)
    (third,) = session.propose([2], [WIDE])
    assert third == first
    assert third.confidences == pytest.approx(first.confidences, rel=1e-9)


def test_a_fixed_form_and_a_floor_of_confidence() -> None:
    shape = TreeShape.from_paths([(0,), (1,), (2,), (0, 0), (0, 1), (1, 0)])
    drafter = made("eagle3", HeadOptions(shape, 0.0))
    text = [*prompt(5), 9]
    session = begun(drafter, [context(prompt(5))], [[(9,)]])
    budget = DraftBudget(9, 3, 3)
    (tree,) = session.propose([0], [budget])

    everything = expected("eagle3", prompt(5), text, DraftBudget(900, 2, 3))
    firsts = sorted((p for p in everything if len(p) == 1), key=lambda p: -everything[p])
    rank: dict[Path, int] = {path: place for place, path in enumerate(firsts)}
    for path in list(everything):
        if len(path) == 2:
            siblings = sorted(
                (p for p in everything if p[:1] == path[:1] and len(p) == 2),
                key=lambda p: -everything[p],
            )
            rank[path] = siblings.index(path)
    formed = {tuple(rank[p[: n + 1]] for n in range(len(p))): p for p in everything}
    assert_drafted(tree, {formed[p]: everything[formed[p]] for p in shape.paths})

    floored = made("eagle3", HeadOptions(shape, 0.05))
    (pruned,) = begun(floored, [context(prompt(5))], [[(9,)]]).propose([0], [budget])
    assert paths(pruned) == {p: c for p, c in paths(tree).items() if c >= 0.05}
    assert 0 < len(pruned) < len(tree)


@pytest.mark.parametrize("least", [-0.1, 1.1])
def test_a_confidence_is_a_probability(least: float) -> None:
    with pytest.raises(ConfigError, match=f"from 0 to 1, got {least}"):
        HeadOptions(min_confidence=least)


@pytest.mark.parametrize("name", ["eagle3, trimmed", "eagle2"])
def test_rejection_sampling_gets_the_law_of_each_token(name: str) -> None:
    drafter, oracle = made(name), oracle_of(name, prompt(6))
    text = [*prompt(6), 9]
    states = states_of(text[:-1], drafter.feature_layers)
    session = begun(drafter, [context(prompt(6), "sampled", 5, rejection=True)], [[(9,)]])
    (tree,) = session.propose([0], [DraftBudget(6, 3, 4)])

    assert tree == DraftTree.chain(tree.token_ids)
    assert len(tree) == 3
    assert tree.draft_probs is not None
    for depth, law in enumerate(tree.draft_probs):
        wanted = torch.tensor(oracle.log_probs(text, states, tree.token_ids[:depth])).exp()
        assert torch.allclose(law.float(), wanted, atol=1e-5)
    worths = [float(law.square().sum()) for law in tree.draft_probs]
    assert tree.confidences == pytest.approx([math.prod(worths[: n + 1]) for n in range(3)])


def test_a_closed_session_holds_nothing() -> None:
    session = begun(made("eagle3"), [context(prompt(1))], [[(9,)]])
    session.propose([0], [WIDE])
    session.close()
    assert session.cache.lengths() == {}
