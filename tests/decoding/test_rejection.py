"""Rejection sampling: exact by enumeration for one step, and in law over whole passes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.decoding.noise import Stream
from specrag.decoding.sampling import SamplingParams, TokenSampler
from specrag.decoding.tree import ROOT, DraftTree
from specrag.decoding.verify import Verification, verify_rejection
from tests.oracles.fit import joint_law, num_cells
from tests.oracles.fit import p_value as fit
from tests.oracles.rejection import (
    acceptance,
    first_tokens_law,
    one_token_law,
    pass_law,
    residual,
)

VOCAB, PROMPT = 16, (3, 5, 7, 3)
FEW, MANY = 1_500, 50_000
MODES: dict[str, dict[str, Any]] = {
    "plain": {"temperature": 1.2},
    "all": {
        "temperature": 1.4,
        "top_k": 12,
        "top_p": 0.95,
        "min_p": 0.02,
        "repetition_penalty": 1.3,
        "presence_penalty": 0.4,
        "frequency_penalty": 0.3,
        "logit_bias": {4: 1.5},
    },
}

weights = st.lists(st.integers(0, 9), min_size=5, max_size=5).filter(any)


def law_of(parts: Sequence[int]) -> list[float]:
    return [part / sum(parts) for part in parts]


# One step, exactly.


@given(weights, weights)
@settings(max_examples=300, deadline=None)
def test_the_oracle_gives_the_target_s_law_and_its_acceptance(
    target: list[int], draft: list[int]
) -> None:
    target_probs, draft_probs = law_of(target), law_of(draft)

    assert one_token_law(target_probs, draft_probs) == pytest.approx(target_probs, abs=1e-12)
    accepted = sum(
        chance * min(1.0, target_probs[token] / chance)
        for token, chance in enumerate(draft_probs)
        if chance
    )
    assert accepted == pytest.approx(acceptance(target_probs, draft_probs), abs=1e-12)


@given(st.lists(weights, min_size=7, max_size=7), st.integers(0, 2))
@settings(max_examples=40, deadline=None)
def test_the_oracle_gives_the_target_s_law_of_two_tokens_for_chains(
    laws: list[list[int]], length: int
) -> None:
    vocab = 3

    def target(before: tuple[int, ...]) -> list[float]:
        return law_of([part + 1 for part in laws[sum(before) % 7][:vocab]])

    def draft(before: tuple[int, ...]) -> list[float]:
        return law_of([part + 1 for part in laws[(2 * sum(before) + 3) % 7][2:]])

    found = first_tokens_law(pass_law(target, draft, length, vocab), target, 2, vocab)
    expected = {(a, b): target(())[a] * target((a,))[b] for a, b in product(range(vocab), repeat=2)}

    assert dict(found) == pytest.approx(expected, abs=1e-12)


def step(
    drafted: int, target: list[float], draft: list[float], coin: float
) -> tuple[Verification, list[tuple[list[float], int, Stream]]]:
    """Verifies a chain of one token, with this coin; also what was drawn from, where and how."""
    drawn: list[tuple[list[float], int, Stream]] = []

    def watched(scores: torch.Tensor, seed: int, position: int, stream: Stream) -> int:
        drawn.append((torch.softmax(scores, -1).tolist(), position, stream))
        return int(scores.argmax())

    law = torch.tensor(target, dtype=torch.float64)
    probs = torch.tensor([draft], dtype=torch.float64)
    tree = DraftTree((drafted,), (ROOT,), draft_probs=probs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specrag.decoding.verify.uniform", lambda seed, position, stream: coin)
        patch.setattr("specrag.decoding.verify.draw", watched)
        found = verify_rejection(tree, lambda node, accepted: law, 1, 40)
    return found, drawn


@given(weights, weights)
@settings(max_examples=100, deadline=None)
def test_each_step_accepts_and_replaces_by_the_definition(
    target: list[int], draft: list[int]
) -> None:
    target_probs, draft_probs = law_of(target), law_of(draft)
    for drafted, chance in enumerate(draft_probs):
        if not chance:
            continue
        kept = min(1.0, target_probs[drafted] / chance)
        for coin in (0.0, kept - 1e-6, kept + 1e-6, 1 - 2**-53):
            if not 0 <= coin < 1:
                continue
            found, drawn = step(drafted, target_probs, draft_probs, coin)
            law, position, stream = drawn[-1]
            if coin < kept:
                assert (found.path, found.accepted) == ((0,), (drafted,))
                assert law == pytest.approx(target_probs, abs=1e-6)
                assert (position, stream) == (41, Stream.TARGET)
            else:
                assert (found.path, found.accepted) == ((), ())
                assert law == pytest.approx(residual(target_probs, draft_probs), abs=1e-6)
                assert (position, stream) == (40, Stream.RESIDUAL)
                assert target_probs[found.next_token] > 0


def test_a_coin_of_zero_does_not_accept_a_token_that_the_target_excludes() -> None:
    found, _ = step(1, [1.0, 0.0], [0.5, 0.5], 0.0)

    assert (found.accepted, found.next_token) == ((), 0)


def test_rounding_that_leaves_nothing_over_falls_back_to_the_target() -> None:
    # Drafted where the target has nothing, and elsewhere more than the target: no part is left.
    found, drawn = step(1, [1.0, 0.0], [1.0, 1e-17], 0.5)

    assert (found.accepted, found.next_token) == ((), 0)
    assert drawn[0][0] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (DraftTree((1, 2), (ROOT, ROOT), draft_probs=torch.full((2, 4), 0.25)), "needs a chain"),
        (DraftTree((1,), (ROOT,)), "draft_probs"),
        (DraftTree((1,), (ROOT,), draft_probs=torch.full((1, 3), 0.3)), "vocabulary"),
        (DraftTree((1,), (ROOT,), draft_probs=torch.tensor([[1.0, 0, 0, 0]])), "excludes"),
    ],
)
def test_a_tree_that_it_cannot_verify_is_a_broken_invariant(tree: DraftTree, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        verify_rejection(tree, lambda node, accepted: torch.full((4,), 0.25), 1, 4)


# Whole passes: the law of the first two tokens.


@cache
def logits_after(model: int, text: tuple[int, ...]) -> torch.Tensor:
    """A target (0) and a drafter (1) that know the same, more or less."""
    generator = torch.Generator().manual_seed(hash(text) % 2**31)
    shared = torch.randn(VOCAB, generator=generator)
    own = torch.randn(VOCAB, generator=torch.Generator().manual_seed(hash((model, text)) % 2**31))
    return 1.2 * shared + 0.8 * own


class Models:
    """Target and drafter, each with the same processors, their laws computed once a text."""

    def __init__(self, mode: str) -> None:
        self.params = SamplingParams(**MODES[mode])
        self._sampler = TokenSampler(self.params, prompt_length=len(PROMPT))
        self._laws: dict[tuple[int, tuple[int, ...]], torch.Tensor] = {}
        self._sums: dict[tuple[int, ...], list[float]] = {}

    def law(self, model: int, text: tuple[int, ...]) -> torch.Tensor:
        if (model, text) not in self._laws:
            history = torch.tensor(text)
            law = self._sampler.target_probs(logits_after(model, text), history)
            self._laws[model, text] = law
        return self._laws[model, text]

    def cumulative(self, text: tuple[int, ...]) -> list[float]:
        """The drafter's law as running sums."""
        if text not in self._sums:
            self._sums[text] = self.law(1, text).cumsum(-1).tolist()
        return self._sums[text]


class Fixed(TokenSampler):
    """Draws from a law that is given."""

    def process(self, logits: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
        return logits


DRAWER = Fixed(SamplingParams(temperature=1.0, seed=0))
Draft = Callable[[Models, tuple[int, ...], int], DraftTree]


def chain_of_the_stream(models: Models, text: tuple[int, ...], length: int) -> DraftTree:
    """What a drafter does that draws through its row's sampler."""
    drafted: tuple[int, ...] = ()
    laws = []
    for _ in range(length):
        laws.append(models.law(1, text + drafted))
        position = len(text) + len(drafted)
        token = DRAWER.choose(laws[-1].log(), laws[-1], position, Stream.DRAFT)
        drafted += (token,)
    return with_laws(drafted, laws)


def drawn_chain(models: Models, text: tuple[int, ...], length: int) -> DraftTree:
    """What a drafter does that draws in a way of its own; cheap."""
    rng = random.Random(f"{DRAWER.seed} {len(text)}")
    drafted: tuple[int, ...] = ()
    laws = []
    for _ in range(length):
        laws.append(models.law(1, text + drafted))
        cumulative = models.cumulative(text + drafted)
        drafted += tuple(rng.choices(range(VOCAB), cum_weights=cumulative))
    return with_laws(drafted, laws)


def with_laws(drafted: tuple[int, ...], laws: Sequence[torch.Tensor]) -> DraftTree:
    parents = tuple(range(ROOT, len(drafted) - 1))
    return DraftTree(drafted, parents, draft_probs=torch.stack(list(laws)) if laws else None)


def likeliest_chain(models: Models, text: tuple[int, ...], length: int) -> DraftTree:
    """A known fault of others: the best token, passed off as drawn from the softmax."""
    drafted: tuple[int, ...] = ()
    laws = []
    for _ in range(length):
        laws.append(models.law(1, text + drafted))
        drafted += (int(laws[-1].argmax()),)
    return with_laws(drafted, laws)


def shortened_chain(models: Models, text: tuple[int, ...], length: int) -> DraftTree:
    """Another: the chain is cut before the first token that the drafter was unsure of."""
    tree = drawn_chain(models, text, length)
    assert tree.draft_probs is not None
    sure = [float(law[t]) > 0.12 for law, t in zip(tree.draft_probs, tree.token_ids, strict=True)]
    return tree.selected(range(sure.index(False) if False in sure else length))


def chain_cut_in_advance(models: Models, text: tuple[int, ...], length: int) -> DraftTree:
    """Allowed: whether to draw a further token is decided by those above it."""
    tree = drawn_chain(models, text, length)
    odd = [token % 2 == 1 for token in tree.token_ids]
    return tree.selected(range(odd.index(True) + 1 if True in odd else length))


def p_value(mode: str, draft: Draft, length: int, draws: int) -> float:
    """How well the first two tokens fit the target's law."""
    models, num_accepted = Models(mode), 0
    drawn: list[tuple[int, ...]] = []
    for seed in range(draws):
        DRAWER.seed = seed
        text: tuple[int, ...] = PROMPT
        while len(text) < len(PROMPT) + 2:

            def target_probs(
                node: int, accepted: tuple[int, ...], text: tuple[int, ...] = text
            ) -> torch.Tensor:
                return models.law(0, text + accepted)

            tree = draft(models, text, length)
            found = verify_rejection(tree, target_probs, seed, len(text))
            num_accepted += found.num_accepted
            text += found.token_ids
        drawn.append(text[len(PROMPT) :][:2])
    assert 0.2 < num_accepted / (draws * min(length, 2)) < 2  # both outcomes must have occurred
    drawn_from = joint_law(lambda answer: models.law(0, PROMPT + answer).tolist(), 2)
    assert num_cells(drawn_from, draws) > 25
    return fit(drawn, drawn_from)


@pytest.mark.parametrize(("mode", "length"), [("plain", 1), ("all", 3)])
def test_two_tokens_follow_the_target_s_law(mode: str, length: int) -> None:
    assert p_value(mode, drawn_chain, length, FEW) > 1e-3


@pytest.mark.parametrize("draft", [chain_of_the_stream, chain_cut_in_advance])
def test_so_they_do_with_the_noise_of_the_row_and_cut_by_the_tokens_above(draft: Draft) -> None:
    assert p_value("plain", draft, 2, FEW) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("mode", MODES)
def test_many_pairs_follow_the_target_s_law(mode: str, length: int) -> None:
    assert p_value(mode, chain_of_the_stream, length, MANY) > 1e-3


@pytest.mark.parametrize("draft", [likeliest_chain, shortened_chain])
def test_the_check_of_the_law_finds_a_bias(draft: Draft) -> None:
    assert p_value("plain", draft, 2, FEW) < 1e-6


@given(st.integers(0, 2**40), st.integers(1, 60))
@settings(max_examples=30, deadline=None)
def test_an_empty_tree_decodes_plainly(seed: int, position: int) -> None:
    logits = logits_after(0, (position,))
    params = SamplingParams(temperature=1.0, seed=seed)
    sampler = TokenSampler(params)
    law = sampler.target_probs(logits, torch.tensor(PROMPT))
    found = verify_rejection(DraftTree(), lambda node, accepted: law, seed, position)

    chosen = sampler.choose(logits, torch.tensor(PROMPT), position)
    assert found == Verification((), (), chosen)


def test_a_greedy_target_accepts_its_own_choice_alone() -> None:
    best = torch.nn.functional.one_hot(torch.tensor(2), 4).double()
    for drafted in range(4):
        probs = torch.full((1, 4), 0.25)
        tree = DraftTree((drafted,), (ROOT,), draft_probs=probs)
        for seed in range(20):
            found = verify_rejection(tree, lambda node, accepted: best, seed, 9)
            assert found.token_ids == ((2, 2) if drafted == 2 else (2,))
