"""What every drafter that needs no model must keep to, whatever it proposes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.decoding.budget import DraftBudget
from specrag.decoding.drafter import DraftContext, DraftSession
from specrag.decoding.tree import ROOT, DraftTree
from specrag.drafters.catalog import DRAFTERS, make_drafter

LEARNING = ["suffix+prompt_lookup", "selector"]  # from how their own proposals turned out
NAMES = [*DRAFTERS, *LEARNING]

every_drafter = pytest.mark.parametrize("name", NAMES)
copying_drafter = pytest.mark.parametrize("name", [name for name in NAMES if name != "none"])
few_examples = settings(max_examples=40, deadline=None)

texts = st.lists(st.integers(10, 13), max_size=16).map(tuple)
contexts = st.builds(DraftContext, texts, st.lists(texts, max_size=2).map(tuple))
budgets = st.builds(DraftBudget, st.integers(0, 9), st.integers(0, 5), st.integers(1, 3))

WIDE = DraftBudget(num_speculative_tokens=9, max_depth=5, branching=3)
REPETITIVE = DraftContext((10, 11, 12, 10, 11, 12, 10, 11))


def after(name: str, context: DraftContext, output: Sequence[int] = ()) -> DraftSession:
    session = make_drafter(name).open([context])
    session.observe(0, output)
    return session


def proposal(session: DraftSession, budget: DraftBudget = WIDE, row: int = 0) -> DraftTree:
    (tree,) = session.propose([row], [budget])
    return tree


def looking_ahead(
    session: DraftSession, ahead: Sequence[int], budget: DraftBudget = WIDE, row: int = 0
) -> DraftTree:
    (tree,) = session.propose_after([row], [budget], [ahead])
    return tree


def everything(tree: DraftTree) -> tuple[object, ...]:
    """What a comparison of trees leaves out is part of a proposal too."""
    return tree, tree.confidences, tree.origins, tree.domain


def widest(tree: DraftTree) -> int:
    return max((tree.parents.count(parent) for parent in {ROOT, *tree.parents}), default=0)


@every_drafter
@given(context=contexts, output=texts, budget=budgets)
@few_examples
def test_proposals_stay_within_the_budget(
    name: str, context: DraftContext, output: tuple[int, ...], budget: DraftBudget
) -> None:
    tree = proposal(after(name, context, output), budget)

    assert len(tree) <= budget.num_speculative_tokens
    assert tree.max_depth <= budget.max_depth
    assert widest(tree) <= budget.branching


@every_drafter
@pytest.mark.parametrize("budget", [DraftBudget(0, 4), DraftBudget(4, 0), DraftBudget(0, 0)])
def test_a_budget_of_nothing_gets_an_empty_tree(name: str, budget: DraftBudget) -> None:
    assert proposal(after(name, REPETITIVE), budget) == DraftTree()


@copying_drafter
def test_a_repetition_is_drafted(name: str) -> None:
    tree = proposal(after(name, REPETITIVE), DraftBudget(3, 3))

    assert tree == DraftTree.chain([12, 10, 11])


@copying_drafter
def test_a_copy_of_the_loop_goes_on_past_the_end_of_the_text(name: str) -> None:
    tree = proposal(after(name, DraftContext((10, 11) * 3)), DraftBudget(7, 7))

    assert tree == DraftTree.chain([10, 11, 10, 11, 10, 11, 10])


@copying_drafter
def test_passages_are_copied_from(name: str) -> None:
    context = DraftContext((1, 2, 10), passages=((20, 21), (10, 11, 12)))

    assert proposal(after(name, context), DraftBudget(5, 5)) == DraftTree.chain([11, 12])


@copying_drafter
def test_no_match_runs_from_one_text_into_another(name: str) -> None:
    context = DraftContext((12, 13), passages=((10, 11), (12, 20)))

    assert proposal(after(name, context, [10, 11]), DraftBudget(5, 5)) == DraftTree()


@copying_drafter
def test_the_output_continues_the_prompt(name: str) -> None:
    session = after(name, DraftContext((10, 11)), [12, 10, 11])

    assert proposal(session, DraftBudget(3, 3)) == DraftTree.chain([12, 10, 11])


@every_drafter
@given(context=contexts, output=texts)
@few_examples
def test_proposed_tokens_occur_in_the_context(
    name: str, context: DraftContext, output: tuple[int, ...]
) -> None:
    tree = proposal(after(name, context, output))

    assert set(tree.token_ids) <= {*context.prompt_ids, *output, *sum(context.passages, ())}


@every_drafter
@given(context=contexts, output=texts, budget=budgets)
@few_examples
def test_proposing_again_changes_nothing(
    name: str, context: DraftContext, output: tuple[int, ...], budget: DraftBudget
) -> None:
    often, once = after(name, context), after(name, context)
    for token in output:
        first = everything(proposal(often, budget))
        assert everything(proposal(often, budget)) == first == everything(proposal(once, budget))
        for session in (often, once):
            session.observe(0, [token])

    assert everything(proposal(often)) == everything(proposal(once))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in LEARNING])
@given(context=contexts, output=texts, budget=budgets)
@few_examples
def test_proposing_changes_nothing(
    name: str, context: DraftContext, output: tuple[int, ...], budget: DraftBudget
) -> None:
    asked, left_alone = after(name, context), after(name, context)
    for token in output:
        assert proposal(asked, budget) == proposal(asked, budget)
        asked.observe(0, [token])
    left_alone.observe(0, output)

    assert proposal(asked) == proposal(left_alone)


@every_drafter
@given(context=contexts, blocks=st.lists(texts, max_size=4))
@few_examples
def test_tokens_count_the_same_one_by_one_and_in_blocks(
    name: str, context: DraftContext, blocks: list[tuple[int, ...]]
) -> None:
    in_blocks = after(name, context)
    for block in blocks:
        in_blocks.observe(0, block)
    one_by_one = after(name, context)
    for token in sum(blocks, ()):
        one_by_one.observe(0, [token])

    assert proposal(in_blocks) == proposal(one_by_one)


@every_drafter
@given(rows=st.lists(st.tuples(contexts, texts), min_size=2, max_size=3), budget=budgets)
@few_examples
def test_rows_know_nothing_of_each_other(
    name: str, rows: list[tuple[DraftContext, tuple[int, ...]]], budget: DraftBudget
) -> None:
    batch = make_drafter(name).open([context for context, _ in rows])
    for row, (_, output) in enumerate(rows):
        batch.observe(row, output)
    alone = [proposal(after(name, context, output), budget) for context, output in rows]

    backwards = list(reversed(range(len(rows))))
    assert batch.propose(backwards, [budget] * len(rows)) == [alone[row] for row in backwards]
    assert batch.propose([1], [budget]) == [alone[1]]


@every_drafter
@given(context=contexts, output=texts, ahead=texts, budget=budgets)
@few_examples
def test_looking_ahead_keeps_to_the_budget_and_changes_nothing(
    name: str,
    context: DraftContext,
    output: tuple[int, ...],
    ahead: tuple[int, ...],
    budget: DraftBudget,
) -> None:
    session, left_alone = after(name, context, output), after(name, context, output)
    tree = looking_ahead(session, ahead, budget)

    assert everything(looking_ahead(session, ahead, budget)) == everything(tree)
    assert len(tree) <= budget.num_speculative_tokens
    assert tree.max_depth <= budget.max_depth
    assert widest(tree) <= budget.branching
    assert everything(proposal(session)) == everything(proposal(left_alone))
    for each in (session, left_alone):
        each.observe(0, ahead)
    assert everything(proposal(session)) == everything(proposal(left_alone))


@every_drafter
@given(context=contexts, output=texts, budget=budgets)
@few_examples
def test_looking_no_token_ahead_is_proposing(
    name: str, context: DraftContext, output: tuple[int, ...], budget: DraftBudget
) -> None:
    session = after(name, context, output)

    expected = everything(proposal(session, budget))
    assert everything(looking_ahead(session, (), budget)) == expected


@copying_drafter
@pytest.mark.parametrize("ahead", [(12,), (12, 13), (12, 13, 14)])
def test_looking_along_a_known_text_equals_having_got_there(
    name: str, ahead: tuple[int, ...]
) -> None:
    context = DraftContext((1, 2, 10, 11), passages=((10, 11, 12, 13, 14, 15, 16),))
    ahead_of, there = after(name, context), after(name, context, ahead)

    assert len(proposal(there)) > 0
    assert looking_ahead(ahead_of, ahead) == proposal(there)


@copying_drafter
def test_looking_ahead_finds_a_text_that_nothing_led_to(name: str) -> None:
    session = after(name, DraftContext((1, 2), passages=((10, 11, 12),)))

    assert looking_ahead(session, [99, 10, 11], DraftBudget(4, 4)) == DraftTree.chain([12])
    assert looking_ahead(session, [10, 11, 99], DraftBudget(4, 4)) == DraftTree()


@every_drafter
@given(
    first=contexts,
    joined=contexts,
    output=texts,
    blocks=st.lists(st.tuples(texts, texts), max_size=3),
)
@few_examples
def test_a_row_that_joins_is_like_one_from_the_start(
    name: str,
    first: DraftContext,
    joined: DraftContext,
    output: tuple[int, ...],
    blocks: list[tuple[tuple[int, ...], tuple[int, ...]]],
) -> None:
    grown, whole = make_drafter(name).open([first]), make_drafter(name).open([first, joined])
    for session in (grown, whole):
        session.propose([0], [WIDE])
        session.observe(0, output)

    assert grown.join(joined) == 1
    for block in blocks:
        for session in (grown, whole):
            for row, tokens in enumerate(block):
                session.observe(row, tokens)
    for rows in ([0, 1], [1, 0], [1]):
        budget = [WIDE] * len(rows)
        assert grown.propose(rows, budget) == whole.propose(rows, budget)
        ahead = [(10, 11)] * len(rows)
        found = grown.propose_after(rows, budget, ahead)
        assert found == whole.propose_after(rows, budget, ahead)


@every_drafter
def test_a_row_can_join_a_batch_of_none(name: str) -> None:
    session = make_drafter(name).open([])

    assert [session.join(REPETITIVE), session.join(REPETITIVE)] == [0, 1]
    assert proposal(session, row=1) == proposal(after(name, REPETITIVE))


@every_drafter
@given(passages=st.lists(texts, max_size=2).map(tuple))
@few_examples
def test_an_empty_prompt_is_continued_by_nothing(
    name: str, passages: tuple[tuple[int, ...], ...]
) -> None:
    assert proposal(after(name, DraftContext((), passages))) == DraftTree()


@copying_drafter
def test_an_output_after_an_empty_prompt_is_drafted_from(name: str) -> None:
    session = after(name, DraftContext((), ((),)), [10, 11, 10])

    assert proposal(session, DraftBudget(2, 2)) == DraftTree.chain([11, 10])


@every_drafter
def test_closing_twice_leaves_other_sessions_of_the_drafter_alone(name: str) -> None:
    drafter = make_drafter(name)
    closed, kept = drafter.open([REPETITIVE]), drafter.open([REPETITIVE])
    before = proposal(kept)
    closed.close()
    closed.close()

    assert proposal(kept) == before
    assert proposal(drafter.open([REPETITIVE])) == before


@every_drafter
def test_a_batch_of_no_rows_is_possible(name: str) -> None:
    assert make_drafter(name).open([]).propose([], []) == []


@every_drafter
def test_a_drafter_calls_itself_by_its_registered_name(name: str) -> None:
    assert make_drafter(name).name == name
