from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy import stats

from specrag.decoding.budget import DraftBudget
from specrag.decoding.drafter import DraftContext, Drafter
from specrag.decoding.level import ModelLevel
from specrag.decoding.sampling import SamplingParams, TokenSampler
from specrag.decoding.tree import ROOT, DraftTree
from specrag.drafters.draft_model import DraftModelDrafter
from specrag.drafters.neural.session import DraftModelSession, DraftOptions
from specrag.drafters.suffix import SuffixDrafter
from specrag.drafters.trees.tree_shape import TreeShape
from specrag.errors import ConfigError, ModelError
from specrag.models.huggingface import HuggingFaceTarget
from specrag.models.target import TargetModel
from specrag.models.tiny import tiny_target
from tests.drafters.kit import (
    MODES,
    TOKENIZER,
    VOCAB,
    Watched,
    context,
    decode,
    grid,
    model,
    near_model,
    params,
    prompt,
    target,
)
from tests.drafters.scripted import Scripted

ANY = DraftOptions(min_confidence=0.0)
STATIC = DraftOptions(TreeShape.from_paths([(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0)]), 0.0)
CHAIN = DraftBudget(4, 4, 1)


def drafter(
    draft_model: HuggingFaceTarget, options: DraftOptions = ANY, inner: Drafter | None = None
) -> DraftModelDrafter:
    made = DraftModelDrafter(draft_model, TOKENIZER, drafter=inner, options=options)
    made.bind(target(), TOKENIZER)
    return made


KINDS: dict[str, tuple[int, Callable[[], DraftModelDrafter]]] = {
    "chain of the same": (1, lambda: drafter(target())),
    "chain of one alike": (1, lambda: drafter(near_model())),
    "short chains": (1, lambda: drafter(near_model(), DraftOptions(min_confidence=0.3))),
    "dynamic tree": (3, lambda: drafter(near_model())),
    "pruned tree": (3, lambda: drafter(near_model(), DraftOptions(min_confidence=0.1))),
    "static tree": (3, lambda: drafter(near_model(), STATIC)),
    "static chain": (1, lambda: drafter(near_model(), STATIC)),
    "cascade": (1, lambda: drafter(near_model(), inner=SuffixDrafter())),
}


# Each kind and each mode, trees and chains in most modes; the others when slow.
ANSWERED = {
    ("chain of the same", "greedy"),
    ("chain of one alike", "sampled"),
    ("short chains", "truncated"),
    ("dynamic tree", "truncated"),
    ("pruned tree", "greedy"),
    ("static tree", "sampled"),
    ("static chain", "penalised"),
    ("cascade", "truncated"),
}


@pytest.mark.parametrize(("kind", "mode"), grid(KINDS, MODES, quick=ANSWERED))
def test_every_answer_is_that_of_plain_decoding(kind: str, mode: str) -> None:
    branching, make = KINDS[kind]
    wishes = [params(mode, number, ignore_eos=number % 2 == 0) for number in range(6)]
    found = decode(make(), wishes, branching=branching)
    plain = decode("none", wishes)

    assert [answer.token_ids for answer in found] == [answer.token_ids for answer in plain]
    assert sum(answer.stats.num_accepted_tokens for answer in found) > 4


@pytest.mark.parametrize(
    ("kind", "mode"),
    grid(
        ["alone", "cascade"],
        MODES,
        quick={("alone", "greedy"), ("alone", "truncated"), ("cascade", "sampled")},
    ),
)
def test_a_draft_model_with_the_targets_weights_is_always_right(kind: str, mode: str) -> None:
    wishes = [params(mode, number, max_tokens=30, ignore_eos=True) for number in range(4)]
    inner = SuffixDrafter() if kind == "cascade" else None
    found = decode(drafter(target(), inner=inner), wishes)

    for answer in found:
        assert answer.stats.num_accepted_tokens == answer.stats.num_draft_tokens > 0
        assert answer.stats.num_passes == 6  # 29 tokens behind the first one, 5 a pass


@pytest.mark.parametrize("mode", ["greedy", "sampled"])
def test_a_tree_of_the_targets_weights_holds_what_the_target_says(mode: str) -> None:
    wishes = [params(mode, number, max_tokens=21, ignore_eos=True) for number in range(4)]
    shape = DraftOptions(TreeShape.from_paths([(0,), (1,), (0, 0), (0, 0, 0), (0, 0, 0, 0)]), 0.0)
    found = decode(drafter(target(), shape), wishes, nodes=5, branching=2)

    assert [answer.stats.num_passes for answer in found] == [4] * 4  # 20 tokens, 5 a pass


def test_shared_noise_makes_sampled_drafts_agree_more_often_than_their_own() -> None:
    text, seeds = (9, 5, 7), range(300)
    with torch.inference_mode():
        logits = target().model(torch.tensor([text])).logits[0, -1]
    said = [context(text, "sampled", seed).sampler for seed in seeds]
    history = torch.tensor(text)
    wanted = [sampler.choose(logits, history, 3) for sampler in said if sampler]

    def agreement(rejection: bool) -> float:
        rows = [context(text, "sampled", seed, rejection=rejection) for seed in seeds]
        budgets = [DraftBudget(1, 1, 1)] * len(seeds)
        trees = drafter(near_model()).open(rows).propose(seeds, budgets)
        return sum(t.token_ids == (w,) for t, w in zip(trees, wanted, strict=True)) / len(seeds)

    assert agreement(rejection=False) > agreement(rejection=True) + 0.3


# The cache in step, whatever is asked in whatever order.


def text_of(session: DraftModelSession, row: int) -> list[int]:
    return session._rows[row].transcript.token_ids


def fresh(texts: Sequence[Sequence[int]], made: DraftModelDrafter, mode: str) -> DraftModelSession:
    return made.open([context(text, mode, seed) for seed, text in enumerate(texts)])


def assert_alike(found: DraftTree, expected: DraftTree) -> None:
    assert found == expected
    assert found.confidences == pytest.approx(expected.confidences, abs=1e-9)


BUDGETS = st.builds(DraftBudget, st.integers(0, 6), st.integers(0, 4), st.sampled_from([1, 1, 3]))


@pytest.mark.parametrize("kind", ["plain", "static", "cascade"])
@given(data=st.data())
@settings(deadline=None, max_examples=6, phases=[Phase.generate])  # shrinking takes minutes
def test_a_session_drafts_as_a_fresh_one_with_the_same_text(kind: str, data: st.DataObject) -> None:
    compare_with_fresh_ones(kind, data)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "static", "cascade"])
@given(data=st.data())
@settings(deadline=None, max_examples=60, phases=[Phase.generate])
def test_many_sessions_draft_as_fresh_ones_do(kind: str, data: st.DataObject) -> None:
    compare_with_fresh_ones(kind, data)


def compare_with_fresh_ones(kind: str, data: st.DataObject) -> None:
    options = STATIC if kind == "static" else DraftOptions(min_confidence=0.02)
    inner = SuffixDrafter() if kind == "cascade" else None
    made = drafter(near_model(), options, inner)
    mode = data.draw(st.sampled_from(sorted(MODES)))
    rng = random.Random(data.draw(st.integers(0, 10**6)))
    start = [prompt(rng.randrange(99), 24) for _ in range(3)]
    session = fresh(start[:2], made, mode)
    if data.draw(st.booleans()):
        assert session.join(context(start[2], mode, 2)) == 2
    number = len(session._rows)
    for _ in range(data.draw(st.integers(1, 5))):
        rows = data.draw(st.permutations(range(number)))[: data.draw(st.integers(1, number))]
        budgets = [data.draw(BUDGETS) for _ in rows]
        ahead = [prompt(rng.randrange(99), 3) if rng.random() < 0.3 else () for _ in rows]
        trees = session.propose_after(rows, budgets, ahead)
        lengths = session.cache.lengths()  # and all is in order
        for row, budget, more, tree in zip(rows, budgets, ahead, trees, strict=True):
            text = [*text_of(session, row), *more]
            (expected,) = made.open([context(text, mode, row)]).propose([0], [budget])
            assert_alike(tree, expected)
            if len(tree):
                assert len(text) <= lengths[row] <= len(text) + budget.max_depth
        for row, tree in zip(rows, trees, strict=True):
            session.observe(row, outcome(rng, tree))


def outcome(rng: random.Random, tree: DraftTree) -> list[int]:
    """What a target may make of a draft: all of it, a part, or something else."""
    path = tree.path_to(rng.randrange(ROOT, len(tree)))
    accepted = [tree.token_ids[node] for node in path]
    return [*accepted, *prompt(rng.randrange(99), rng.choice([1, 1, 2, 20]))]


@pytest.mark.parametrize("branching", [1, 3])
def test_proposing_again_gives_the_same_and_changes_nothing(branching: int) -> None:
    session = fresh([prompt(1), prompt(2)], drafter(near_model()), "sampled")
    budget = DraftBudget(6, 4, branching)
    first = session.propose([0, 1], [budget] * 2)

    assert session.propose([0, 1], [budget] * 2) == first
    session.propose_after([1], [budget], [(5, 6, 7)])
    assert session.propose([1, 0], [budget] * 2) == first[::-1]


@pytest.mark.parametrize(("branching", "length"), grid([1, 3], [5, 40], quick={(1, 40), (3, 5)}))
def test_an_error_in_any_pass_leaves_the_next_round_right(branching: int, length: int) -> None:
    budget = DraftBudget(6, 4, branching)
    texts = [prompt(1), tuple(range(4, 4 + length))]
    watched = Watched(near_model())
    session = fresh(texts, drafter(watched), "sampled")
    rounds = 0
    for number in range(9 if branching == 1 else 6):
        for row in (0, 1):
            session.observe(row, [4 + number % 7, 9])
        watched.passes, watched.fails_at = [], number
        try:
            session.propose([0, 1], [budget] * 2)
        except RuntimeError:
            rounds += 1
        watched.fails_at = None
        found = session.propose([0, 1], [budget] * 2)
        session.cache.lengths()
        expected = fresh(
            [text_of(session, row) for row in (0, 1)], drafter(near_model()), "sampled"
        )
        for tree, other in zip(found, expected.propose([0, 1], [budget] * 2), strict=True):
            assert_alike(tree, other)
    assert rounds >= 3  # every pass of a proposal has failed once


# What is computed, and what is not.


def test_only_what_is_new_is_computed() -> None:
    watched = Watched(near_model())
    session = fresh([prompt(3, 40)], drafter(watched), "greedy")
    (draft,) = session.propose([0], [CHAIN])
    assert len(draft) == 4

    def next_round(committed: Sequence[int]) -> list[tuple[int, int]]:
        session.observe(0, committed)
        watched.passes = []
        nonlocal draft
        (draft,) = session.propose([0], [CHAIN])
        assert len(draft) == 4
        return watched.passes

    other = (draft.token_ids[1] + 1) % VOCAB
    # Rejected: only the recovered token is new.
    assert next_round([draft.token_ids[0], other]) == [(1, 1)] * 4
    # All accepted: the last draft token was never fed, and the bonus token is new.
    assert next_round([*draft.token_ids, 7]) == [(1, 2)] + [(1, 1)] * 3
    # Nothing accepted.
    assert next_round([(draft.token_ids[0] + 1) % VOCAB]) == [(1, 1)] * 4


def test_the_likeliest_path_of_a_tree_is_not_computed_again() -> None:
    watched = Watched(near_model())
    session = fresh([prompt(3)], drafter(watched, STATIC), "greedy")
    (draft,) = session.propose([0], [DraftBudget(6, 3, 2)])
    best = draft.path_to(draft.depths.index(3))
    session.observe(0, [*(draft.token_ids[node] for node in best), 7])
    watched.passes = []
    (found,) = session.propose([0], [DraftBudget(6, 3, 2)])
    expected = fresh([text_of(session, 0)], drafter(near_model(), STATIC), "greedy")

    assert watched.passes[0] == (1, 2)
    assert_alike(found, expected.propose([0], [DraftBudget(6, 3, 2)])[0])


def test_the_prompt_is_read_when_a_draft_is_first_wanted() -> None:
    watched = Watched(near_model())
    session = fresh([prompt(3, 40), prompt(4)], drafter(watched), "greedy")
    nothing = [DraftBudget(0, 4, 1), DraftBudget(4, 0, 1)]

    assert session.propose([0, 1], nothing) == [DraftTree()] * 2
    assert watched.passes == []


def test_rows_that_are_not_asked_for_take_part_in_no_pass() -> None:
    watched = Watched(near_model())
    session = fresh([prompt(1), prompt(2), prompt(3)], drafter(watched), "greedy")
    first = session.propose([0, 1, 2], [CHAIN] * 3)
    watched.passes = []
    assert session.propose([2, 0], [CHAIN, CHAIN]) == [first[2], first[0]]
    assert {rows for rows, _ in watched.passes} == {2}
    watched.passes = []
    # The row that was left out comes back, and has lost nothing.
    assert session.propose([0, 1, 2], [CHAIN] * 3) == first
    assert watched.passes == [(3, 1)] * 4


def test_drafting_stops_early_where_the_model_is_unsure() -> None:
    watched = Watched(near_model())
    texts = [prompt(number) for number in range(8)]
    full = fresh(texts, drafter(near_model()), "greedy").propose(range(8), [CHAIN] * 8)
    short = fresh(texts, drafter(watched, DraftOptions(min_confidence=0.2)), "greedy")
    found = short.propose(range(8), [CHAIN] * 8)

    assert {len(tree) for tree in found} > {0}
    for tree, whole in zip(found, full, strict=True):
        assert tree == whole.truncated(sum(c >= 0.2 for c in whole.confidences), 4)


def test_a_chain_is_worth_the_product_of_its_probabilities() -> None:
    text = prompt(5)
    (chain,) = fresh([text], drafter(near_model()), "greedy").propose([0], [CHAIN])
    expected, worth = [], 1.0
    for depth in range(4):
        tokens = torch.tensor([[*text, *chain.token_ids[:depth]]])
        with torch.inference_mode():
            probs = near_model().model(tokens).logits[0, -1].softmax(-1)
        assert int(probs.argmax()) == chain.token_ids[depth]
        worth *= float(probs.max())
        expected.append(worth)

    assert chain.confidences == pytest.approx(expected, rel=1e-5)
    assert chain.origins == (("draft:near-tiny-1",),) * 4


# Texts longer than the draft model's context.


@pytest.mark.parametrize(
    ("kind", "size"),
    grid(
        ["chain", "tree", "cascade"],
        [4, 16],
        quick={("chain", 4), ("tree", 16), ("cascade", 16)},
    ),
)
def test_a_short_context_is_a_window_over_the_text(kind: str, size: int) -> None:
    watched = Watched(model(near=0.1, context=size))
    made = drafter(watched, inner=SuffixDrafter() if kind == "cascade" else None)
    wishes = [params("sampled", number, max_tokens=26, ignore_eos=True) for number in range(2)]
    prompts = [prompt(1), tuple(range(4, 44))]
    branching = 3 if kind == "tree" else 1
    found = decode(made, wishes, prompts, branching=branching)

    assert [a.token_ids for a in found] == [a.token_ids for a in decode("none", wishes, prompts)]
    assert 0 < watched.furthest <= size
    assert all(answer.stats.num_draft_tokens > 10 for answer in found)


def test_a_window_is_moved_seldom_and_keeps_half_the_context() -> None:
    watched = Watched(model(context=32))
    session = fresh([[5]], drafter(watched), "greedy")
    fed = []
    for number in range(120):
        session.observe(0, [4 + number % 50])
        watched.passes = []
        session.propose([0], [DraftBudget(1, 1, 1)])
        fed.append(sum(nodes for _, nodes in watched.passes))
        held = session.cache.lengths()[0]
        assert held == number + 2 or held > 16

    assert sum(size > 1 for size in fed[1:]) == pytest.approx(120 / 8, abs=3)


# Rejection sampling.


def rejecting(seeds: Sequence[int], budget: DraftBudget) -> list[DraftTree]:
    contexts = [context((9, 5, 7), "truncated", seed, rejection=True) for seed in seeds]
    options = DraftOptions(min_confidence=0.5)  # which must not be heeded
    return (
        drafter(near_model(), options)
        .open(contexts)
        .propose(range(len(seeds)), [budget] * len(seeds))
    )


def test_drafts_for_rejection_sampling_are_whole_and_name_their_law() -> None:
    for tree in rejecting(range(20), DraftBudget(6, 3, 4)):
        assert tree.parents == (ROOT, 0, 1)
        assert tree.draft_probs is not None
        assert tree.draft_probs.shape == (3, VOCAB)
        assert tree.draft_probs.sum(-1).tolist() == pytest.approx([1.0] * 3)
        assert all(tree.draft_probs[node, token] > 0 for node, token in enumerate(tree.token_ids))


def test_drafts_for_rejection_sampling_are_drawn_from_the_law_they_name() -> None:
    trees = rejecting(range(600), DraftBudget(1, 1, 1))
    law = trees[0].draft_probs
    assert law is not None
    counts = Counter(tree.token_ids[0] for tree in trees)
    likely = [token for token in range(VOCAB) if law[0, token] * 600 >= 5]
    observed = [counts[token] for token in likely]
    expected = [float(law[0, token]) for token in likely]
    rest = 1 - sum(expected)
    p_value = stats.chisquare(
        [*observed, 600 - sum(observed) + 1], [600 * e for e in expected] + [600 * rest + 1]
    ).pvalue
    assert len(likely) > 4
    assert p_value > 1e-3


def test_the_worth_of_a_drawn_token_does_not_depend_on_which_it_is() -> None:
    trees = rejecting(range(200), DraftBudget(2, 2, 1))

    assert len({tree.token_ids[0] for tree in trees}) > 4
    assert len({tree.confidences[0] for tree in trees}) == 1
    by_first: dict[int, set[float]] = {}
    for tree in trees:
        by_first.setdefault(tree.token_ids[0], set()).add(tree.confidences[1])
    assert all(len(worths) == 1 for worths in by_first.values())


# Around it.


class OnlyAfter:
    """A user's processor for which a text that holds token 9 has no continuation."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return torch.full_like(scores, -torch.inf) if 9 in input_ids[0].tolist() else scores


@pytest.mark.parametrize("rejection", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("branching", [1, 3])
def test_a_draft_ends_where_the_rows_processors_leave_no_token(
    rejection: bool, temperature: float, branching: int
) -> None:
    sampler = TokenSampler(SamplingParams(temperature=temperature), processors=[OnlyAfter()])
    made = drafter(near_model())
    session = made.open([DraftContext((5, 6), sampler=sampler, rejection=rejection)])
    budget = DraftBudget(6, 4, branching)

    assert session.propose_after([0], [budget], [[9]]) == [DraftTree()]
    assert len(session.propose([0], [budget])[0]) > 0


def test_a_drafter_knows_its_model_once_it_is_bound() -> None:
    made = DraftModelDrafter(near_model(), TOKENIZER, name="small")
    with pytest.raises(AssertionError, match="small must be bound"):
        made.open([])
    for _ in range(2):
        made.bind(target(), TOKENIZER)

    assert made.levels == (ModelLevel(near_model()),)
    assert made.device == "cpu"
    assert made.open([]).propose([], []) == []


def test_features_reach_the_drafter_of_the_draft_model() -> None:
    inner, states = Scripted("inner"), {1: torch.ones(2, 3)}
    made = DraftModelDrafter(target(), TOKENIZER, drafter=inner)
    made.bind(target(), TOKENIZER)
    made.open([context(prompt(1))]).observe(0, [5, 6], states)

    assert inner.sessions[0].features[0] is states


def test_binding_and_joining_reach_the_drafter_of_the_draft_model() -> None:
    inner = DraftModelDrafter(near_model(), TOKENIZER)
    made = DraftModelDrafter(target(), TOKENIZER, drafter=inner)
    made.bind(target(), TOKENIZER)
    session = made.open([context(prompt(1))])
    session.join(context(prompt(2)))
    session.observe(1, [5, 6])
    assert isinstance(session._inner, DraftModelSession)
    assert text_of(session._inner, 1) == [*prompt(2), 5, 6]
    session.propose([0, 1], [CHAIN] * 2)
    session.close()
    session.close()
    assert session.cache.lengths() == session._inner.cache.lengths() == {}


def test_a_model_that_cannot_roll_back_is_refused() -> None:
    stateful = model()
    stateful.no_speculation = "it keeps a recurrent state"
    with pytest.raises(ConfigError, match="'tiny-1' cannot draft: it keeps a recurrent state"):
        DraftModelDrafter(stateful, TOKENIZER).bind(target(), TOKENIZER)


def test_a_confidence_out_of_range_is_refused() -> None:
    with pytest.raises(ConfigError, match="min_confidence must be from 0 to 1, got 1.5"):
        DraftOptions(min_confidence=1.5)


def test_a_named_model_is_loaded_once_in_the_targets_dtype(tmp_path: Path) -> None:
    saved = tiny_target(seed=1, vocab_size=VOCAB, peakedness=2.0)
    saved.model.save_pretrained(tmp_path)
    TOKENIZER.backend.save_pretrained(tmp_path)
    made = DraftModelDrafter.named(str(tmp_path))
    unloaded: object = made.levels
    assert unloaded == ()
    loaded: list[TargetModel] = []
    half = tiny_target(seed=3, vocab_size=VOCAB)
    half.model.bfloat16()
    for other in (half, half, saved):
        made.bind(other, TOKENIZER)
        (level,) = made.levels
        assert isinstance(level, ModelLevel)
        loaded.append(level.model)

    assert len(loaded) == 3
    assert loaded[0] is loaded[1] is loaded[2]
    assert loaded[2].dtype == torch.bfloat16
    assert made.name == f"draft:{tmp_path}"


def test_a_name_that_is_no_model_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model at"):
        DraftModelDrafter.named(str(tmp_path / "missing"))


def test_confidences_fall_along_every_path() -> None:
    session = fresh([prompt(number) for number in range(4)], drafter(near_model()), "sampled")
    for tree in session.propose(range(4), [DraftBudget(12, 5, 3)] * 4):
        assert all(a >= b for a, b in pairwise(tree.confidences))
        for node, parent in enumerate(tree.parents):
            assert parent == ROOT or tree.confidences[node] <= tree.confidences[parent]
