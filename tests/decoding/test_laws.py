"""Whole sessions against the exact law of the target, for every way to draft."""

from __future__ import annotations

import random
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from specrag.decoding.budget import DraftBudget, PassCosts, SpeculationConfig
from specrag.decoding.noise import Stream, draw
from specrag.decoding.row import DecodingRequest, Row
from specrag.decoding.sampling import SamplingParams, TokenSampler
from specrag.decoding.session import DecodingSession
from specrag.decoding.stats import DecodingStats
from specrag.decoding.tree import ROOT, DraftTree
from specrag.decoding.verify import Verification, verify
from tests.decoding.scripts import TOKENIZER, VOCAB, target
from tests.decoding.ways import WAYS, Scribe, Way, strange_chain, with_rejection
from tests.oracles.fit import joint_law, num_cells, p_value, uniform_p_value
from tests.oracles.processing import token_law

COUNT, ROWS = 3, 500
FEW, MANY = 800, 10_000
LEAST_P, FOUND_P = 1e-4, 1e-9
PROMPT = (5, 9, 12, 7, 5, 9, 12, 8, 5, 9, 12, 7, 5, 9)
MODES: dict[str, dict[str, Any]] = {
    "warm": {"temperature": 1.2},
    "all": {
        "temperature": 1.2,
        "top_k": 11,
        "top_p": 0.95,
        "min_p": 0.02,
        "repetition_penalty": 1.15,
        "presence_penalty": -1.2,
        "frequency_penalty": 0.3,
        "logit_bias": {4: 0.7, 9: -0.5},
    },
    "averse": {"temperature": 1.2, "presence_penalty": 1.5, "frequency_penalty": 1.0},
}


class Manner(NamedTuple):
    """How a session is run."""

    policy: str = "fixed"
    joining: bool = False
    optimistic: str = "off"


MANNERS = {
    "at once": Manner(),
    "joining": Manner("goodput", joining=True),
    "optimistic": Manner("goodput", joining=True, optimistic="on"),
}


@contextmanager
def scores_computed_once() -> Iterator[None]:
    """For rows with one prompt and the same parameters: most of them come to the same few texts."""
    known: dict[tuple[bytes, bytes], torch.Tensor] = {}
    process = TokenSampler.process

    def remembered(self: TokenSampler, logits: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
        asked = logits.float().numpy().tobytes(), history.numpy().tobytes()
        if asked not in known:
            known[asked] = process(self, logits, history)
        return known[asked]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TokenSampler, "process", remembered)
        yield


# The law, by the plain model and the oracle.


@torch.inference_mode()
def logits_after(texts: Sequence[Sequence[int]]) -> list[list[float]]:
    found: list[list[float]] = target().model(torch.tensor(texts)).logits[:, -1].tolist()
    return found


def params(mode: str, seed: int, max_tokens: int = COUNT + 1) -> SamplingParams:
    return SamplingParams(seed=seed, max_tokens=max_tokens, ignore_eos=True, **MODES[mode])


@cache
def law(mode: str) -> dict[tuple[int, ...], float]:
    asked = params(mode, 0)
    logits: dict[tuple[int, ...], list[float]] = {}
    for length in range(COUNT):
        answers = list(product(range(VOCAB), repeat=length))
        logits.update(zip(answers, logits_after([PROMPT + a for a in answers]), strict=True))
    return joint_law(lambda a: token_law(logits[a], asked, PROMPT, a).tolist(), COUNT)


ANY_PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.5, 1.0, 1.6]),
    top_k=st.integers(0, 7),
    top_p=st.sampled_from([0.3, 0.8, 0.95, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.4]),
    repetition_penalty=st.sampled_from([0.8, 1.0, 1.5]),
    presence_penalty=st.sampled_from([-0.5, 0.0, 1.0]),
    frequency_penalty=st.sampled_from([-0.3, 0.0, 0.7]),
    min_tokens=st.integers(0, 4),
    logit_bias=st.dictionaries(st.integers(0, 5), st.sampled_from([-1.0, 2.0]), max_size=2),
)


@given(st.integers(0, 2**32), ANY_PARAMS, st.lists(st.integers(0, 5), max_size=5))
@settings(max_examples=150, deadline=None, phases=[Phase.generate])
def test_the_oracle_and_the_sampler_process_alike(
    number: int, asked: SamplingParams, answer: list[int]
) -> None:
    # Without ties: of two equal tokens at the edge of a truncation, either may be kept.
    logits = [random.Random(f"{number} {token}").gauss(0, 2) for token in range(6)]
    prompt = [1, 3, 1][: 1 + number % 3]
    sampler = TokenSampler(asked, prompt_length=len(prompt), end_token_ids=[0])
    found = sampler.target_probs(torch.tensor(logits), torch.tensor([*prompt, *answer]))

    expected = token_law(logits, asked, prompt, answer, ends=[0])
    assert found.numpy() == pytest.approx(expected, abs=1e-5)


def test_rare_cells_are_pooled_with_their_likes() -> None:
    weights: dict[tuple[int, ...], float] = {
        (0, 0): 0.5,
        (0, 1): 0.03,
        (0, 2): 0.03,
        (1, 0): 0.41,
        (1, 1): 0.02,
        (2, 2): 0.01,
    }

    assert num_cells(weights, 100) == 3  # 00, 10, and 01 with 02 and, as it is rare, all the rest
    even = [tokens for tokens, mass in weights.items() for _ in range(round(100 * mass))]
    assert p_value(even, weights) == pytest.approx(1.0)
    assert p_value([*even, (3, 3)], weights) == 0.0
    assert p_value([(0, 0) if t == (0, 1) else t for t in 9 * even], weights) < 1e-3


# Sessions.


def rows_of(way: Way, manner: Manner, requests: Sequence[DecodingRequest], count: int) -> list[Row]:
    """Runs a session until each row has some tokens.

    Args:
        way: How to draft.
        manner: How to run it. Where rows join, a third of them opens it and the others come in
            two groups, two rounds apart.
        requests: Of the rows.
        count: Tokens that each row shall have at least.
    """
    config = SpeculationConfig(
        num_speculative_tokens=5,
        max_depth=2,
        branching=way.branching,
        policy=manner.policy,
        verification=way.verification,
        optimistic=manner.optimistic,
    )
    costs = PassCosts((1, 8 * len(requests)), (1.0, 1.2), way.draft_level)
    drafter = way.make()
    drafter.bind(target(), TOKENIZER, costs)
    size = -(-len(requests) // 3) if manner.joining else len(requests)
    groups = [requests[start : start + size] for start in range(0, len(requests), size)]
    session = DecodingSession(target(), drafter, TOKENIZER, groups.pop(0), config, costs)
    try:
        while groups or any(len(row.token_ids) < count for row in session.rows):
            session.step()
            if groups:
                session.step()
                for request in groups.pop(0):
                    session.add(request)
    finally:
        session.close()
    return session.rows


def seeds(what: str, number: int) -> range:
    """Seeds of its own for each case, so that the cases are independent."""
    first = zlib.crc32(what.encode()) << 20
    return range(first, first + number)


def drawn(name: str, manner: str, mode: str, number: int, way: Way | None = None) -> list[Row]:
    """Draws answers to the prompt, each with another seed."""
    asked = [
        DecodingRequest(PROMPT, params(mode, seed))
        for seed in seeds(f"{name} {manner} {mode}", number)
    ]
    rows: list[Row] = []
    with scores_computed_once():
        for start in range(0, number, ROWS):
            part = asked[start : start + ROWS]
            rows += rows_of(way or WAYS[name], MANNERS[manner], part, COUNT)
    return rows


def fit(rows: Sequence[Row], mode: str) -> float:
    """How well the tokens fit their law, and which of them repeat another, as penalties decide."""
    answers = [tuple(row.token_ids[:COUNT]) for row in rows]
    repeats: dict[tuple[int, ...], float] = defaultdict(float)
    for tokens, mass in law(mode).items():
        repeats[pattern(tokens)] += mass
    worst = min(p_value(answers, law(mode)), p_value(map(pattern, answers), repeats))
    return min(1.0, 2 * worst)


def pattern(tokens: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(tokens.index(token) for token in tokens)


def assert_speculated(rows: Sequence[Row], manner: str) -> None:
    """Else nothing was shown: drafts must have been accepted, and others rejected."""
    total = DecodingStats()
    for row in rows:
        total.add(row.stats)
    assert total.num_drafts > 0.3 * len(rows)
    assert 0.05 * total.num_drafts < total.num_accepted_tokens_per_pos[0] < 0.95 * total.num_drafts
    assert (total.num_ahead_drafts > 0) == (manner == "optimistic")


def enough(name: str, number: int) -> int:
    """How many answers: fewer where others compare token by token with plain decoding."""
    return number if WAYS[name].verification == "rejection" else number // 2


def check(name: str, manner: str, mode: str, number: int) -> None:
    rows = drawn(name, manner, mode, number)
    assert_speculated(rows, manner)
    assert num_cells(law(mode), number) > 20
    assert fit(rows, mode) > LEAST_P


# Each kind of draft and of verification once; the rest when slow.
QUICK = [
    ("merged tree", "joining", "all"),
    ("dynamic tree", "at once", "all"),
    ("suffix>draft", "joining", "averse"),
    ("liar", "at once", "warm"),
    ("rejection chain", "joining", "all"),
    ("rejection, stranger", "optimistic", "all"),
]


@pytest.mark.parametrize(("name", "manner", "mode"), QUICK)
def test_three_tokens_follow_the_exact_law(name: str, manner: str, mode: str) -> None:
    check(name, manner, mode, enough(name, FEW))


@pytest.mark.slow
@pytest.mark.parametrize("manner", ["at once", "optimistic"])
@pytest.mark.parametrize("name", WAYS)
def test_many_answers_follow_the_exact_law(name: str, manner: str) -> None:
    check(name, manner, "all", enough(name, MANY))


# Long answers: the law of each token is exact, given those before it.


def ranks(rows: Sequence[Row]) -> list[float]:
    """Where each token lies in its law, the likeliest token first: uniform, and independent.

    The probability integral transform, made continuous by chance within a token's share.
    """
    rng = random.Random(1)
    found: list[float] = []
    for row in rows:
        prompt, answer = row.request.prompt_ids, row.token_ids
        with torch.inference_mode():
            logits = target().model(torch.tensor([[*prompt, *answer]])).logits[0].tolist()
        for place, token in enumerate(answer):
            before = logits[len(prompt) + place - 1]
            chances = token_law(before, row.request.params, prompt, answer[:place])
            order = np.argsort(-chances, kind="stable").tolist()
            above = sum(chances[other] for other in order[: order.index(token)])
            found.append(min(float(above + rng.random() * chances[token]), 1 - 1e-9))
    return found


def long_answers(name: str, mode: str, number: int, way: Way | None = None) -> list[Row]:
    rng = random.Random(number)
    asked = [
        DecodingRequest(PROMPT[: rng.randint(2, len(PROMPT))], params(mode, seed, 40))
        for seed in seeds(f"long {name} {mode}", number)
    ]
    return rows_of(way or WAYS[name], MANNERS["optimistic"], asked, 40)


@pytest.mark.parametrize(
    ("name", "mode"),
    [("selector", "all"), ("rejection, selector", "warm")],
)
def test_every_token_of_long_answers_follows_its_law(name: str, mode: str) -> None:
    rows = long_answers(name, mode, 18)
    assert_speculated(rows, "optimistic")
    assert all(len(row.token_ids) == 40 for row in rows)
    assert sum(row.stats.num_ahead_kept for row in rows) > 5
    assert all(len(row.stats.drafters) > 1 for row in rows)  # each answer changes its drafter
    assert uniform_p_value(ranks(rows)) > LEAST_P


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_every_token_of_many_long_answers_follows_its_law(name: str) -> None:
    rows = long_answers(name, "all", 200)
    assert sum(row.stats.num_accepted_tokens for row in rows) > 1_000
    assert uniform_p_value(ranks(rows)) > LEAST_P


# Faults that the checks must find.

Patch = Callable[[pytest.MonkeyPatch], None]


def drafts_preferred(patch: pytest.MonkeyPatch) -> None:
    def biased(tree: DraftTree, choose: Callable[[int, tuple[int, ...]], int]) -> Verification:
        found = verify(tree, choose)
        if found.path or not len(tree):
            return found
        token = tree.token_ids[0]
        return Verification((0,), (token,), choose(0, (token,)))

    patch.setattr("specrag.decoding.row.verify", biased)


def history_without_the_draft(patch: pytest.MonkeyPatch) -> None:
    """Penalties that do not see the accepted tokens of the pass."""

    def blind(
        self: Row, node: int, accepted: tuple[int, ...], logits: torch.Tensor, best: Sequence[int]
    ) -> int:
        history = self.history.view()
        return self.sampler.choose(logits[node + 1], history, len(history) + len(accepted))

    patch.setattr(Row, "_choose", blind)


def parents_law(patch: pytest.MonkeyPatch) -> None:
    """A token behind an accepted one is drawn from the law of the node above."""
    choose = Row._choose

    def late(
        self: Row, node: int, accepted: tuple[int, ...], logits: torch.Tensor, best: Sequence[int]
    ) -> int:
        return choose(self, max(node - 1, ROOT), accepted, logits, best)

    patch.setattr(Row, "_choose", late)


def noise_used_twice(patch: pytest.MonkeyPatch) -> None:
    """A token behind an accepted one is drawn with the noise that drew that one."""

    def again(scores: torch.Tensor, seed: int, position: int, stream: Stream) -> int:
        return draw(scores, seed, position - position % 2, stream)

    patch.setattr("specrag.decoding.sampling.draw", again)


def always_replaced_by_the_whole_law(patch: pytest.MonkeyPatch) -> None:
    """Rejection sampling whose replacement is drawn from the target's law, not the residual."""

    def careless(scores: torch.Tensor, seed: int, position: int, stream: Stream) -> int:
        whole = stream is Stream.RESIDUAL
        return draw(laws[-1].log() if whole else scores, seed, position, stream)

    laws: list[torch.Tensor] = []
    target_probs = TokenSampler.target_probs

    def noted(self: TokenSampler, logits: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
        laws.append(target_probs(self, logits, history))
        return laws[-1]

    patch.setattr(TokenSampler, "target_probs", noted)
    patch.setattr("specrag.decoding.verify.draw", careless)


def one_coin_for_all(patch: pytest.MonkeyPatch) -> None:
    """A token is accepted when the target's probability is at least half the drafter's."""
    patch.setattr("specrag.decoding.verify.uniform", lambda seed, position, stream: 0.5)


def truncated_by_its_tokens(patch: pytest.MonkeyPatch) -> None:
    """A policy that cuts a randomly drawn chain before its unlikely tokens."""

    def chosen(self: object, rows: object, proposals: Sequence[DraftTree]) -> list[DraftTree]:
        cut = []
        for tree in proposals:
            probs: Sequence[torch.Tensor] = (
                [] if tree.draft_probs is None else list(tree.draft_probs)
            )
            sure = [float(p[t]) > 0.2 for p, t in zip(probs, tree.token_ids, strict=True)]
            cut.append(tree.selected(range(sure.index(False) if False in sure else len(tree))))
        return cut

    patch.setattr("specrag.decoding.policy.SpeculationPolicy.chosen", chosen)


FAULTS: list[Any] = [
    (drafts_preferred, "merged tree", "all", FEW),
    (history_without_the_draft, "draft chain", "averse", 2 * FEW),
    pytest.param(parents_law, "draft chain", "warm", 2 * FEW, marks=pytest.mark.slow),
    (noise_used_twice, "merged tree", "all", FEW),
    (always_replaced_by_the_whole_law, "rejection, stranger", "all", FEW),
    (one_coin_for_all, "rejection, stranger", "all", FEW),
    (truncated_by_its_tokens, "rejection chain", "all", FEW),
]


@pytest.mark.parametrize(("fault", "name", "mode", "number"), FAULTS)
def test_a_fault_of_the_loop_is_found(
    fault: Patch, name: str, mode: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    # A single answer that cannot be would do, and come by chance: the law itself must not fit.
    rows = [row for row in drawn(name, "at once", mode, number) if possible(row, mode)]

    assert fit(rows, mode) < FOUND_P


def possible(row: Row, mode: str) -> bool:
    return tuple(row.token_ids[:COUNT]) in law(mode)


def likeliest_chain(sampler: TokenSampler, text: tuple[int, ...], budget: DraftBudget) -> DraftTree:
    """The likeliest token of each law, passed off as drawn from it."""
    chain = strange_chain(sampler, text, budget)
    if chain.draft_probs is None:
        return chain
    best = [int(probs.argmax()) for probs in chain.draft_probs]
    return replace(chain, token_ids=tuple(best))


def test_draft_probs_that_nothing_was_drawn_from_are_found() -> None:
    way = with_rejection(lambda: Scribe(likeliest_chain))

    assert fit(drawn("likeliest", "at once", "all", FEW, way), "all") < FOUND_P


def test_a_fault_behind_the_third_token_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    drafts_preferred(monkeypatch)

    assert uniform_p_value(ranks(long_answers("merged tree", "all", 18))) < FOUND_P
