"""What every drafter that reads the target's states must keep to, whatever it proposes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.decoding.budget import DraftBudget, SpeculationConfig
from specrag.decoding.drafter import DraftContext, Drafter, DraftSession
from specrag.decoding.generator import SpeculativeGenerator
from specrag.decoding.sampling import SamplingParams
from specrag.decoding.tree import ROOT, DraftTree
from specrag.drafters.eagle import EagleDrafter
from specrag.drafters.medusa import MedusaDrafter
from specrag.drafters.neural.head_session import HeadOptions
from tests.drafters.kit import MODES, TOKENIZER, VOCAB, context, decode, params, prompt, target
from tests.drafters.reading import eagle_heads, medusa_heads, opened, tell

HALF = tuple(range(0, VOCAB, 2))
SHARES = ((0.5, 0.2, 0.1), (0.4, 0.1, 0.1), (0.3, 0.1, 0.1))

ALL = HeadOptions(min_confidence=0.0)


def eagle(token_ids: tuple[int, ...] | None = None, **shape: Any) -> Drafter:
    ids = None if token_ids is None else torch.tensor(token_ids)
    return EagleDrafter(eagle_heads(**shape), ids, options=ALL)


MAKERS: dict[str, Callable[[], Drafter]] = {
    "eagle3": lambda: eagle(),
    "eagle3, trimmed": lambda: eagle(HALF),
    "eagle3, own": lambda: eagle(
        HALF, own_lm_head=True, draft_vocab_size=len(HALF), own_embedding=True, norm_output=True
    ),
    "eagle3, deep": lambda: eagle(
        num_layers=2, layer={"qk_norm": True, "qkv_bias": True}, norm_before_residual=True
    ),
    "eagle2": lambda: eagle(generation=2),
    "eagle2, deep": lambda: eagle(HALF, generation=2, num_layers=2, final_norm=True),
    "medusa, dynamic": lambda: MedusaDrafter(medusa_heads(), HALF),
    "medusa, measured": lambda: MedusaDrafter(medusa_heads(), accuracies=SHARES),
    "medusa, own": lambda: MedusaDrafter(medusa_heads(scale=0.3, own_lm_head=True), HALF),
}

every_drafter = pytest.mark.parametrize("name", MAKERS)
few_examples = settings(max_examples=6, deadline=None)


@cache
def made(name: str) -> Drafter:
    drafter = MAKERS[name]()
    drafter.bind(target(), TOKENIZER)
    return drafter


prompts = st.integers(0, 30).map(prompt)
texts = st.lists(st.integers(4, VOCAB - 1), max_size=5).map(tuple)
blocks = st.lists(texts, min_size=1, max_size=3).filter(any)
budgets = st.builds(DraftBudget, st.integers(0, 9), st.integers(0, 5), st.integers(1, 3))
modes = st.sampled_from(sorted(MODES))
WIDE = DraftBudget(9, 5, 3)


@st.composite
def contexts(draw: st.DrawFn) -> DraftContext:
    mode, seed = draw(modes), draw(st.integers(0, 99))
    sampled = mode in ("sampled", "truncated")
    made = context(draw(prompts), mode, seed, rejection=sampled and draw(st.booleans()))
    return DraftContext(made.prompt_ids, (draw(texts),), made.sampler, made.rejection)


@st.composite
def rows(draw: st.DrawFn) -> tuple[DraftContext, list[tuple[int, ...]]]:
    return draw(contexts()), draw(blocks)


def alone(name: str, row: tuple[DraftContext, Sequence[Sequence[int]]]) -> DraftSession:
    return opened(made(name), [row[0]], [row[1]])


def proposal(session: DraftSession, budget: DraftBudget = WIDE, row: int = 0) -> DraftTree:
    (tree,) = session.propose([row], [budget])
    return tree


def assert_alike(found: DraftTree, expected: DraftTree) -> None:
    assert found == expected
    assert found.origins == expected.origins
    assert found.confidences == pytest.approx(expected.confidences, abs=1e-7)
    assert (found.draft_probs is None) == (expected.draft_probs is None)
    if found.draft_probs is not None and expected.draft_probs is not None:
        assert torch.allclose(found.draft_probs, expected.draft_probs)


def widest(tree: DraftTree) -> int:
    return max((tree.parents.count(parent) for parent in {ROOT, *tree.parents}), default=0)


@cache
def plain_answers(mode: str) -> list[list[int]]:
    return [list(answer.token_ids) for answer in decode("none", wishes(mode))]


def wishes(mode: str) -> list[SamplingParams]:
    return [params(mode, number, ignore_eos=number % 2 == 0) for number in range(4)]


@every_drafter
@pytest.mark.parametrize("mode", MODES)
def test_every_answer_is_that_of_plain_decoding(name: str, mode: str) -> None:
    for branching in (1, 3):
        found = decode(made(name), wishes(mode), branching=branching)

        assert [list(answer.token_ids) for answer in found] == plain_answers(mode)
        assert sum(answer.stats.num_draft_tokens for answer in found) > 0


@every_drafter
@pytest.mark.parametrize("mode", ["greedy", "sampled"])
def test_verification_by_rejection_runs_through(name: str, mode: str) -> None:
    drafter = made(name)
    config = SpeculationConfig(4, policy="fixed", min_acceptance=0.0, verification="rejection")
    generator = SpeculativeGenerator(target(), TOKENIZER, drafter, config)
    requests = [generator.request(prompt(n), params(mode, n, ignore_eos=True)) for n in range(3)]
    session = generator.open(requests)
    while not session.finished:
        session.step()
    session.close()

    for row, request in zip(session.rows, requests, strict=True):
        assert len(row.token_ids) == request.params.max_tokens
        assert row.stats.num_draft_tokens > 0


@every_drafter
@given(row=rows(), budget=budgets)
@few_examples
def test_proposals_stay_within_the_budget(
    name: str, row: tuple[DraftContext, list[tuple[int, ...]]], budget: DraftBudget
) -> None:
    tree = proposal(alone(name, row), budget)

    assert len(tree) <= budget.num_speculative_tokens
    assert tree.max_depth <= budget.max_depth
    assert widest(tree) <= budget.branching
    if budget.num_speculative_tokens and budget.max_depth:
        assert len(tree) > 0
    above = [1.0 if p == ROOT else tree.confidences[p] for p in tree.parents]
    pairs = zip(tree.confidences, above, strict=True)
    assert all(0 <= mine <= parent + 1e-9 for mine, parent in pairs)


@every_drafter
@given(row=rows(), budget=budgets, more=texts.filter(bool))
@few_examples
def test_proposing_changes_nothing(
    name: str,
    row: tuple[DraftContext, list[tuple[int, ...]]],
    budget: DraftBudget,
    more: tuple[int, ...],
) -> None:
    asked, left_alone = alone(name, row), alone(name, row)
    first = proposal(asked, budget)
    asked.propose_after([0], [WIDE], [(7, 9)])
    assert_alike(proposal(asked, budget), first)

    known = [*row[1], more]
    expected = proposal(alone(name, (row[0], known)))
    for session in (asked, left_alone):
        drafter = made(name)
        text = [*row[0].prompt_ids, *sum(known, ())]
        _tell_last(session, drafter, text, len(more))
        assert_alike(proposal(session), expected)


def _tell_last(session: DraftSession, drafter: Drafter, text: Sequence[int], count: int) -> None:
    """Tells the last tokens of a text, the rest being known."""

    class Last:
        def observe(self, row: int, tokens: Sequence[int], features: Any = None) -> None:
            found = {layer: states[-count:] for layer, states in features.items()}
            session.observe(row, tokens[-count:], found)

    tell(Last(), 0, drafter, text[:-count], [text[-count:]])  # type: ignore[arg-type]


@every_drafter
@given(row=rows())
@few_examples
def test_tokens_count_the_same_one_by_one_and_in_blocks(
    name: str, row: tuple[DraftContext, list[tuple[int, ...]]]
) -> None:
    one_by_one = [(token,) for token in sum(row[1], ())]

    found = proposal(alone(name, (row[0], one_by_one)))
    assert_alike(found, proposal(alone(name, row)))


@every_drafter
@given(batch=st.lists(rows(), min_size=2, max_size=3), budget=budgets)
@few_examples
def test_rows_know_nothing_of_each_other(
    name: str, batch: list[tuple[DraftContext, list[tuple[int, ...]]]], budget: DraftBudget
) -> None:
    session = opened(made(name), [c for c, _ in batch], [said for _, said in batch])
    expected = [proposal(alone(name, row), budget) for row in batch]
    backwards = list(reversed(range(len(batch))))

    found = session.propose(backwards, [budget] * len(batch))
    for tree, row in zip(found, backwards, strict=True):
        assert_alike(tree, expected[row])
    assert_alike(proposal(session, budget, row=1), expected[1])


@every_drafter
@given(first=rows(), second=rows())
@few_examples
def test_a_row_that_joins_is_like_one_from_the_start(
    name: str,
    first: tuple[DraftContext, list[tuple[int, ...]]],
    second: tuple[DraftContext, list[tuple[int, ...]]],
) -> None:
    drafter = made(name)
    session = opened(drafter, [first[0]], [first[1]])
    session.propose([0], [WIDE])

    assert session.join(second[0]) == 1
    tell(session, 1, drafter, second[0].prompt_ids, second[1])
    whole = opened(drafter, [first[0], second[0]], [first[1], second[1]])
    for indices in ([0, 1], [1, 0], [1]):
        found = session.propose(indices, [WIDE] * len(indices))
        expected = whole.propose(indices, [WIDE] * len(indices))
        for mine, theirs in zip(found, expected, strict=True):
            assert_alike(mine, theirs)


@every_drafter
@given(row=rows(), ahead=texts, budget=budgets)
@few_examples
def test_looking_ahead_keeps_to_the_budget(
    name: str,
    row: tuple[DraftContext, list[tuple[int, ...]]],
    ahead: tuple[int, ...],
    budget: DraftBudget,
) -> None:
    session = alone(name, row)
    (tree,) = session.propose_after([0], [budget], [ahead])
    (again,) = session.propose_after([0], [budget], [ahead])

    assert_alike(again, tree)
    assert len(tree) <= budget.num_speculative_tokens
    assert tree.max_depth <= budget.max_depth
    assert widest(tree) <= budget.branching
    if not ahead:
        assert_alike(tree, proposal(session, budget))


@every_drafter
def test_a_row_without_a_first_token_gets_nothing(name: str) -> None:
    drafter = made(name)
    session = drafter.open([context(prompt(1)), context(prompt(2))])
    tell(session, 1, drafter, prompt(2), [(9,)])

    found = session.propose([0, 1], [WIDE, WIDE])
    assert [len(tree) > 0 for tree in found] == [False, True]


@every_drafter
def test_tokens_without_states_are_an_error(name: str) -> None:
    session = opened(made(name), [context(prompt(1))], [[]])

    with pytest.raises(AssertionError, match="states"):
        session.observe(0, [5])


@every_drafter
def test_closing_twice_leaves_other_sessions_of_the_drafter_alone(name: str) -> None:
    drafter = made(name)
    row = (context(prompt(3)), [(9, 8)])
    closed, kept = (opened(drafter, [row[0]], [row[1]]) for _ in range(2))
    before = proposal(kept)
    closed.close()
    closed.close()

    assert_alike(proposal(kept), before)
    assert_alike(proposal(opened(drafter, [row[0]], [row[1]])), before)


@every_drafter
def test_a_batch_of_no_rows_is_possible(name: str) -> None:
    assert opened(made(name), [], []).propose([], []) == []
