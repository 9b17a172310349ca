"""Every branch of the advice, from figures that leave no doubt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specrag.decoding.budget import PassCosts
from specrag.evaluation.tuning.advice import Advice, DrafterFigures, advise, choose
from specrag.evaluation.tuning.candidate import Candidate, Result
from tests.evaluation.tuning.played import COSTS, result

ONE = Candidate("suffix", 1, 1, "fixed")
CHAIN = Candidate("suffix", 8, 1, "fixed")
TREE = Candidate("suffix", 8, 4, "fixed")
USUAL = Candidate("suffix", 15, 4, "goodput")
MODEL = Candidate("draft:m", 4, 1, "goodput")
FALLBACK = Candidate("none", 15, 4, "goodput")


def drafter(name: str = "suffix", speedup: float = 1.2, level: float = 0.0) -> DrafterFigures:
    candidates = replace(USUAL, drafter=name), replace(CHAIN, drafter=name)
    usual, chain = (result(candidate, speedup) for candidate in candidates)
    return DrafterFigures(name, usual, chain, level)


def advised(
    finals: list[Result],
    drafters: list[DrafterFigures] | None = None,
    costs: PassCosts = COSTS,
    min_acceptance: float = 0.4,
) -> Advice:
    return advise(
        finals,
        drafters or [drafter()],
        costs,
        min_acceptance=min_acceptance,
        fallback=FALLBACK,
    )


@pytest.mark.parametrize(
    ("finals", "winner"),
    [
        ([result(ONE, 1.5), result(CHAIN, 1.2)], ONE),
        ([result(CHAIN, 1.2), result(TREE, 1.5)], TREE),
        ([result(USUAL, 1.5), result(MODEL, 2.0)], MODEL),
        # Within three per cent the simpler one is taken, whichever is a little faster.
        ([result(TREE, 1.52), result(CHAIN, 1.5), result(MODEL, 1.53)], CHAIN),
        ([result(TREE, 1.5), result(USUAL, 1.47)], USUAL),
        ([result(TREE, 1.5), result(USUAL, 1.4)], TREE),
        # What is not surely faster than plain decoding takes no part, however simple or fast.
        ([result(TREE, 1.2), result(ONE, 1.18, around=0.3)], TREE),
        ([result(TREE, 1.2), result(ONE, 1.9, around=1.0)], TREE),
    ],
)
def test_the_fastest_wins_and_of_equals_the_simplest(
    finals: list[Result], winner: Candidate
) -> None:
    chosen = choose(finals)
    assert chosen is not None
    assert chosen.candidate == winner


@pytest.mark.parametrize(
    "finals",
    [
        [],
        [result(ONE, 0.8), result(CHAIN, 0.7)],
        [result(ONE, 1.04), result(CHAIN, 1.3, around=0.4)],
        [result(ONE, 1.5, around=None)],
        [result(ONE, 1.5, num_prompts=4)],
    ],
)
def test_plain_decoding_is_kept_unless_something_surely_beats_it(finals: list[Result]) -> None:
    assert choose(finals) is None
    advice = advised(finals)
    assert (advice.drafter, advice.speculate, advice.largest_paying_batch) == ("none", False, 0)
    assert (advice.num_speculative_tokens, advice.branching, advice.policy) == (15, 4, "goodput")
    assert any("plain decoding" in reason for reason in advice.reasons)


def test_few_prompts_are_no_proof_and_that_is_said() -> None:
    told = advised([result(ONE, 1.5, num_prompts=4)]).reasons[0]
    assert "over 4 prompts that is no proof" in told
    assert "no proof" not in advised([result(ONE, 0.9)]).reasons[0]


def test_what_wins_is_advised_with_its_figures() -> None:
    advice = advised([result(TREE, 1.5), result(ONE, 1.1)])
    assert advice.to_dict() == {
        "drafter": "suffix",
        "num_speculative_tokens": 8,
        "branching": 4,
        "policy": "fixed",
        "speculate": True,
        "reasons": advice.reasons,
        "break_even_acceptance": pytest.approx(0.05, abs=1e-4),  # a pass of two costs 1.05
        "largest_paying_batch": advice.largest_paying_batch,
    }
    assert "150.0 tokens a second, 1.50x (1.45 to 1.55) plain decoding" in advice.reasons[0]
    assert any("fewer than 5% of the drafted tokens" in reason for reason in advice.reasons)


def test_a_simpler_winner_says_what_was_a_little_faster() -> None:
    told = " ".join(advised([result(TREE, 1.52), result(CHAIN, 1.5)]).reasons)
    assert f"{TREE.name} was hardly faster" in told
    assert "hardly" not in " ".join(advised([result(TREE, 1.52), result(CHAIN, 1.2)]).reasons)


def test_the_families_are_compared() -> None:
    copying = advised([result(ONE, 1.5)]).reasons
    assert any("--draft-model names one" in reason for reason in copying)
    both = [drafter(), drafter("prompt_lookup", 1.1), drafter("draft:m", 1.7, 0.25)]
    reasons = advised([result(MODEL, 1.6)], both).reasons
    told = next(reason for reason in reasons if reason.startswith("By family"))
    assert "a draft model 1.70x (draft:m" in told
    assert "costs 0.25 of a pass" in told
    assert "copying from the text 1.20x (suffix" in told
    assert "prompt_lookup" not in told
    assert not any("--draft-model" in reason for reason in reasons)


def test_the_border_is_that_of_the_drafter_that_is_advised() -> None:
    drafters = [drafter("draft:m", 1.7, 0.3), drafter("suffix", 1.2, 0.1)]
    flat = PassCosts((1,), (1.0,))
    assert advised([result(ONE, 1.5)], drafters, flat).break_even_acceptance == 0.1
    assert advised([result(MODEL, 1.5)], drafters, flat).break_even_acceptance == 0.3
    # Where none is, it is that of the drafter that came nearest.
    assert advised([result(ONE, 0.5)], drafters, flat).break_even_acceptance == 0.3


@pytest.mark.parametrize(
    ("costs", "level", "expected", "words"),
    [
        (PassCosts((1, 2), (1.0, 2.0)), 0.0, None, "not even certain acceptance"),
        (PassCosts((1,), (1.0,)), 0.0, 0.0, "however few"),
        (PassCosts((1,), (1.0,)), 0.3, 0.3, "fewer than 30%"),
        (COSTS, 0.2, 0.25, "fewer than 25%"),
    ],
)
def test_it_says_when_to_switch_off(
    costs: PassCosts, level: float, expected: float | None, words: str
) -> None:
    advice = advised([result(ONE, 1.5)], [drafter(level=level)], costs)
    near = expected if expected is None else pytest.approx(expected, abs=1e-3)
    assert advice.break_even_acceptance == near
    assert any(words in reason for reason in advice.reasons)


def test_the_guard_is_named_only_where_there_is_one() -> None:
    def told(least: float) -> str:
        return " ".join(advised([result(ONE, 1.5)], min_acceptance=least).reasons)

    assert "min_acceptance is 0.25" in told(0.25)
    assert "min_acceptance" not in told(0.0)


@pytest.mark.parametrize(
    ("costs", "batch", "words"),
    [
        (PassCosts((1,), (1.0,)), 64, "still pays for 64 rows"),
        (PassCosts((1, 8, 16), (1.0, 1.0, 2.0)), 4, "for up to 4 rows"),
        (PassCosts((1, 2), (1.0, 2.0)), 0, "By the costs of a pass alone it would not pay"),
    ],
)
def test_it_says_for_which_batches_it_pays(costs: PassCosts, batch: int, words: str) -> None:
    advice = advised([result(ONE, 1.5)], costs=costs)
    assert advice.largest_paying_batch == batch
    assert any(words in reason for reason in advice.reasons)


def test_the_figures_of_a_drafter_have_its_speed_and_its_acceptance() -> None:
    found = drafter("draft:m", 1.7, 0.25)
    figures: dict[str, Any] = {
        "drafter": "draft:m",
        "category": "all",
        "family": "model",
        "tokens_per_second": 170.0,
        "speedup": 1.7,
        "speedup_low": 1.65,
        "speedup_high": 1.75,
        "mean_acceptance_length": 1.5,
        "acceptance": 0.5,
        "acceptance_by_depth": [0.5, 0.25],
        "draft_level": 0.25,
        "num_prompts": 5,
    }
    assert found.figures == figures
