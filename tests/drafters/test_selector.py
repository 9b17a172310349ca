from __future__ import annotations

from typing import cast

import pytest
import torch

from specrag.decoding.budget import DraftBudget, PassCosts
from specrag.decoding.drafter import DraftContext
from specrag.decoding.generator import SpeculativeGenerator
from specrag.decoding.sampling import SamplingParams
from specrag.decoding.tree import ROOT, DraftTree
from specrag.drafters.composite import CompositeDrafter
from specrag.drafters.domain import CODE, MATH, TEXT
from specrag.drafters.none import NoDrafter
from specrag.drafters.prompt_lookup import PromptLookupDrafter
from specrag.drafters.selector import SelectorDrafter
from specrag.drafters.suffix import SuffixDrafter
from specrag.errors import ConfigError
from specrag.models.target import TargetModel
from specrag.models.tiny import tiny_target, tiny_tokenizer
from specrag.models.tokenizer import Tokenizer
from tests.drafters.scripted import Scripted
from tests.drafters.test_domain import CODE_TEXTS, LOOP, MATH_TEXTS, PLAIN_TEXTS, Letters, spelled

WIDE = DraftBudget(9, 4, 4)
COSTS = PassCosts((1, 2, 9), (1.0, 1.1, 3.0))

GOOD = DraftTree.chain([5, 6], [0.9, 0.8])
POOR = DraftTree.chain([7], [0.9])
EMITTED = [5, 6, 9]


def context(prompt: str) -> DraftContext:
    return DraftContext(tuple(spelled(prompt)))


CODE_PROMPT, MATH_PROMPT, TEXT_PROMPT = (
    context(texts[0]) for texts in (CODE_TEXTS, MATH_TEXTS, PLAIN_TEXTS)
)


def bound(drafter: SelectorDrafter, costs: PassCosts | None = None) -> SelectorDrafter:
    """Binds to nothing but a way to read, which is all that scripted drafters let one see."""
    drafter.bind(cast("TargetModel", None), cast("Tokenizer", Letters()), costs)
    return drafter


def arms() -> dict[str, Scripted]:
    return {name: Scripted(f"for {name}", GOOD) for name in (CODE, MATH, TEXT)}


def test_each_kind_of_text_has_its_drafter_and_says_so() -> None:
    session = bound(SelectorDrafter(arms())).open([CODE_PROMPT, TEXT_PROMPT, MATH_PROMPT])
    trees = session.propose([2, 0, 1], [WIDE] * 3)

    assert trees == [GOOD] * 3
    assert [tree.domain for tree in trees] == [MATH, CODE, TEXT]
    assert [set(tree.origins) for tree in trees] == [
        {("for math",)},
        {("for code",)},
        {("for text",)},
    ]
    assert [tree.confidences for tree in trees] == [GOOD.confidences] * 3


def test_an_empty_tree_states_its_domain_too() -> None:
    session = bound(SelectorDrafter({CODE: Scripted("silent")})).open([CODE_PROMPT])
    (tree,) = session.propose([0], [WIDE])

    assert (len(tree), tree.domain, tree.origins) == (0, CODE, ())


def test_only_the_chosen_drafter_proposes_and_all_observe() -> None:
    drafters = arms()
    session = bound(SelectorDrafter(drafters)).open([CODE_PROMPT, TEXT_PROMPT])
    session.propose([0, 1], [WIDE] * 2)
    states = {1: torch.ones(len(EMITTED), 3)}
    session.observe(1, EMITTED, states)
    sessions = {name: drafter.sessions[0] for name, drafter in drafters.items()}

    assert {name: each.asked for name, each in sessions.items()} == {
        CODE: [[0]],
        MATH: [],
        TEXT: [[1]],
    }
    assert all(each.observed == [[], EMITTED] for each in sessions.values())
    assert all(each.features[0] is states for each in sessions.values())


def test_rows_of_one_drafter_are_asked_together_each_with_its_budget() -> None:
    drafter = Scripted("only", GOOD)
    session = bound(SelectorDrafter({TEXT: drafter})).open([CODE_PROMPT, TEXT_PROMPT, MATH_PROMPT])
    budget = [DraftBudget(2, 2), DraftBudget(0, 0), DraftBudget(1, 1)]
    trees = session.propose([2, 0, 1], budget)

    assert drafter.sessions[0].asked == [[2, 0, 1]]
    assert [len(tree) for tree in trees] == [2, 0, 1]


def test_an_answer_that_turns_to_code_changes_the_drafter() -> None:
    session = bound(SelectorDrafter(arms())).open([TEXT_PROMPT])
    session.observe(0, spelled("Here it is, as you wanted:\n```\n" + LOOP))

    assert session.propose([0], [WIDE])[0].domain == CODE
    session.observe(0, spelled("\n```\nI hope that it is of some use to you in your work. "))
    assert session.propose([0], [WIDE])[0].domain == TEXT


def test_a_kind_left_out_has_the_drafter_of_text_or_the_first() -> None:
    with_text = bound(SelectorDrafter({CODE: Scripted("a"), TEXT: Scripted("b", GOOD)}))
    without = bound(SelectorDrafter({CODE: Scripted("a", GOOD)}))

    assert with_text.open([MATH_PROMPT]).propose([0], [WIDE])[0].origins[0] == ("b",)
    assert without.open([MATH_PROMPT]).propose([0], [WIDE])[0].origins[0] == ("a",)


def test_a_better_drafter_takes_over_for_later_sessions_too() -> None:
    drafter = SelectorDrafter({TEXT: Scripted("poor", POOR)}, others=[Scripted("good", GOOD)])
    for _ in range(17):
        session = drafter.open([TEXT_PROMPT])
        for _ in range(32):
            session.propose([0], [WIDE])
            session.observe(0, EMITTED)
    (tree,) = drafter.open([TEXT_PROMPT]).propose([0], [WIDE])
    report = drafter.report()[TEXT]

    assert tree.origins[0] == ("good",)
    assert report["good"]["goodput"] > 2 > 1 > report["poor"]["goodput"]
    assert report["good"]["rounds"] + report["poor"]["rounds"] == 17 * 32


def test_only_one_row_of_a_round_explores() -> None:
    drafter = SelectorDrafter({TEXT: Scripted("a", GOOD)}, others=[Scripted("b", GOOD)])
    session = drafter.open([TEXT_PROMPT] * 3)
    for _ in range(31):
        session.propose([0], [WIDE])
        session.observe(0, EMITTED)
    trees = session.propose([2, 0, 1], [WIDE] * 3)

    assert [tree.origins[0] for tree in trees] == [("b",), ("a",), ("a",)]


@pytest.mark.parametrize(
    ("tree", "costs", "emitted", "tokens", "goodput"),
    [
        (GOOD, None, [5, 6, 9], 3, 3 / 1.04),
        (GOOD, None, [5, 8], 2, 2 / 1.04),
        (GOOD, None, [8], 1, 1 / 1.04),
        (DraftTree(), None, [8], 1, 1.0),
        (DraftTree.chain([5, 6], [0.9, 0.01]), COSTS, [5, 6, 9], 2, 2 / 1.1),  # 6 was not worth it
        (DraftTree.chain([5, 6]), COSTS, [5, 6, 9], 3, 3 / (1.1 + 1.9 / 7)),
        # Nothing had been sent, though it would have been accepted.
        (DraftTree.chain([5], [0.9]), COSTS, [5], 2, 2 / 1.1),
    ],
)
def test_a_round_is_judged_by_what_was_worth_verifying(
    tree: DraftTree, costs: PassCosts | None, emitted: list[int], tokens: int, goodput: float
) -> None:
    drafter = bound(SelectorDrafter({CODE: Scripted("a", tree)}), costs)
    session = drafter.open([CODE_PROMPT])
    session.propose([0], [WIDE])
    session.observe(0, emitted)

    found = drafter.report()[CODE]["a"]
    assert found == {"rounds": 1, "tokens": tokens, "goodput": pytest.approx(goodput)}


def test_the_cost_of_drafting_counts() -> None:
    costly = SelectorDrafter({CODE: Scripted("a", GOOD)}, draft_costs={"a": 0.5})
    session = bound(costly).open([CODE_PROMPT])
    session.propose([0], [WIDE])
    session.observe(0, EMITTED)

    assert costly.report()[CODE]["a"]["goodput"] == pytest.approx(3 / 1.54)


def test_what_no_draft_was_allowed_for_teaches_nothing() -> None:
    drafter = bound(SelectorDrafter({CODE: Scripted("a", GOOD)}))
    session = drafter.open([CODE_PROMPT])
    session.observe(0, EMITTED)
    for budget in (DraftBudget(0, 4), DraftBudget(4, 0)):
        session.propose([0], [WIDE])
        session.propose([0], [budget])
        session.observe(0, EMITTED)
    session.propose_after([0], [WIDE], [[1]])
    session.observe(0, EMITTED)

    assert drafter.report() == {}


def test_looking_ahead_asks_the_drafter_that_would_propose() -> None:
    by_last = {8: DraftTree.chain([4])}
    drafter = SelectorDrafter({CODE: Scripted("a", by_last=by_last), TEXT: Scripted("b", GOOD)})
    session = bound(drafter).open([CODE_PROMPT, TEXT_PROMPT])
    trees = session.propose_after([1, 0], [WIDE] * 2, [[8], [8]])

    assert trees == [GOOD, DraftTree((4,), (ROOT,))]
    assert [tree.domain for tree in trees] == [TEXT, CODE]


def test_a_row_that_joins_has_a_kind_of_its_own() -> None:
    session = bound(SelectorDrafter(arms())).open([TEXT_PROMPT])

    assert session.join(CODE_PROMPT) == 1
    assert [tree.domain for tree in session.propose([1, 0], [WIDE] * 2)] == [CODE, TEXT]


def test_closing_closes_every_drafter() -> None:
    drafters = arms()
    bound(SelectorDrafter(drafters)).open([TEXT_PROMPT]).close()

    assert [drafter.sessions[0].closed for drafter in drafters.values()] == [1, 1, 1]


def test_binding_reaches_every_drafter_and_their_layers_are_united() -> None:
    first, second = Scripted("a", layers=(3, 1)), Scripted("b", layers=(1, 5))
    drafter = SelectorDrafter({CODE: first}, others=[second])
    drafter.bind(tiny_target(), tiny_tokenizer(), COSTS)

    assert first.bound_to == second.bound_to == [COSTS]
    assert drafter.feature_layers == (3, 1, 5)


def test_the_usual_choice_needs_no_arguments_and_no_binding() -> None:
    drafter = SelectorDrafter()
    repeated = DraftContext((10, 11, 12, 10, 11, 12, 10))
    (tree,) = drafter.open([repeated]).propose([0], [DraftBudget(3, 3)])

    assert drafter.arms == ("suffix", "suffix+prompt_lookup")
    assert (tree.token_ids, tree.domain) == ((11, 12, 10), TEXT)


def test_one_object_may_serve_several_kinds() -> None:
    shared = Scripted("a", GOOD)

    assert SelectorDrafter({CODE: shared, TEXT: shared}, others=[shared]).arms == ("a",)


def test_two_drafters_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two different drafters named 'a'.*\n.*same object"):
        SelectorDrafter({CODE: Scripted("a"), TEXT: Scripted("a")})


def test_no_drafter_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"(?s)at least one kind of text.*code, math, text"):
        SelectorDrafter({})


def test_an_unknown_kind_of_text_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown kind of text 'maths'; did you mean 'math'"):
        SelectorDrafter({"maths": Scripted("a")})


def test_a_cost_for_an_unknown_drafter_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown drafter 'sufix'; did you mean 'suffix'"):
        SelectorDrafter(draft_costs={"sufix": 0.1})


@pytest.mark.parametrize("cost", [-0.1, float("inf"), float("nan")])
def test_an_impossible_cost_is_refused(cost: float) -> None:
    with pytest.raises(ConfigError, match="draft cost of 'suffix' must be 0 or more"):
        SelectorDrafter(draft_costs={"suffix": cost})


def test_changing_drafters_in_the_middle_of_an_answer_changes_no_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("specrag.drafters.arms._EXPLORE_EVERY", 2)
    target, tokenizer = tiny_target(seed=3), tiny_tokenizer()
    both = CompositeDrafter([SuffixDrafter(), PromptLookupDrafter()])
    drafter = SelectorDrafter({TEXT: both}, others=[SuffixDrafter(), NoDrafter()])
    prompts = [[5, 6, 7, 5, 6, 7, 5], [9, 8, 9, 8]]
    params = SamplingParams(max_tokens=60, ignore_eos=True)
    drafted, plain = (
        SpeculativeGenerator(target, tokenizer, each).generate(prompts, params)
        for each in (drafter, NoDrafter())
    )

    assert isinstance(drafted, list)
    assert isinstance(plain, list)
    assert [one.token_ids for one in drafted] == [one.token_ids for one in plain]
    assert {origin for arms in drafter.report().values() for origin in arms} == set(drafter.arms)
