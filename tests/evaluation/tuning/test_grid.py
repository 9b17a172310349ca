from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from specrag.decoding.analysis import Acceptance, speedup
from specrag.decoding.budget import PassCosts
from specrag.evaluation.tuning.advice import BATCH_SIZES
from specrag.evaluation.tuning.candidate import Candidate
from specrag.evaluation.tuning.grid import (
    GAMMAS,
    candidates,
    gammas_that_can_pay,
    largest_batch_as_sent,
    largest_paying_batch,
    probes,
    rates,
)
from tests.evaluation.tuning.played import COSTS

FLAT = PassCosts((1,), (1.0,))
STEEP = PassCosts((1, 2), (1.0, 2.0))  # a pass of twice the size costs twice as much


def test_all_lengths_can_pay_where_passes_are_free() -> None:
    assert gammas_that_can_pay(0.5, FLAT, 0.0) == list(GAMMAS)


def test_a_draft_that_costs_much_is_tried_short() -> None:
    assert gammas_that_can_pay(0.5, FLAT, 0.3) == [1, 2]
    # Two tokens for two passes' time is no gain; one length is tried all the same.
    assert gammas_that_can_pay(1.0, STEEP, 0.0) == [1]


def test_a_drafter_is_probed_as_it_is_used_and_with_long_chains() -> None:
    assert probes("suffix", 15, FLAT, 0.0) == [
        Candidate("suffix", 15, 4, "goodput"),
        Candidate("suffix", 16, 1, "fixed"),
    ]
    assert probes("draft:m", 15, STEEP, 0.5)[1] == Candidate("draft:m", 1, 1, "fixed")


def test_lengths_trees_and_policies_are_tried() -> None:
    found = candidates("suffix", 15, (0.8, 0.8), FLAT, 0.0)
    assert len(set(found)) == len(found)
    assert {c.num_speculative_tokens for c in found if c.policy == "fixed"} == set(GAMMAS)
    assert {c.branching for c in found if c.policy == "goodput"} == {1, 2, 4}
    assert {c.branching for c in found if c.policy == "fixed"} == {1, 2, 4}
    assert {c.policy for c in found} == {"goodput", "recent_acceptance", "fixed"}
    assert found[0] == Candidate("suffix", 15, 4, "goodput")


@settings(deadline=None, max_examples=50)
@example([0.5, 0.5, 0.5], 0.1)
@given(st.floats(0, 1) | st.lists(st.floats(0, 1), min_size=1), st.floats(0, 1))
def test_no_length_that_was_ruled_out_pays(acceptance: Acceptance, level: float) -> None:
    found = candidates("suffix", 15, acceptance, COSTS, level)
    tried = {c.num_speculative_tokens for c in found if c.policy == "fixed" and c.branching == 1}
    for gamma in set(GAMMAS) - tried:
        assert speedup(acceptance, gamma, level, COSTS) <= 1


def test_acceptance_by_depth_is_of_those_that_came_there() -> None:
    row = {"acceptance_by_depth": [0.5, 0.25, 0.05, 0.0], "speculation": {"num_drafts": 100}}
    # Five drafts came to the fourth depth: too few to tell.
    assert rates(row) == [0.5, 0.5, 0.2]
    assert rates({**row, "speculation": None}) == 0.5
    assert rates({"acceptance_by_depth": [], "speculation": {"num_drafts": 0}}) == 0.5


def test_drafts_as_they_were_sent_pay_until_the_batch_fills_the_pass() -> None:
    counts = {
        "num_drafts": 100,
        "num_draft_tokens": 300,
        "num_accepted_tokens": 90,
        "num_accepted_tokens_per_pos": [50, 40, 0],
    }
    step = PassCosts((1, 8, 16), (1.0, 1.0, 2.0))
    # Four nodes a row: two rows fill eight, four of them cost two passes for 1.9 tokens.
    assert largest_batch_as_sent({"speculation": counts}, step, 0.0, BATCH_SIZES) == 2
    assert largest_batch_as_sent({"speculation": counts}, step, 0.29, BATCH_SIZES) == 2
    assert largest_batch_as_sent({"speculation": counts}, step, 0.31, BATCH_SIZES) == 0
    nothing = {"speculation": {**counts, "num_drafts": 0}}
    assert largest_batch_as_sent(nothing, step, 0.0, BATCH_SIZES) == 0


def test_a_batch_pays_until_its_passes_get_too_large() -> None:
    assert largest_paying_batch(0.9, FLAT, 0.0, BATCH_SIZES) == 64
    assert largest_paying_batch(0.9, STEEP, 0.0, BATCH_SIZES) == 0
    # Flat up to eight nodes: with eight rows the first drafted tokens would cost a pass each.
    step = PassCosts((1, 8, 16), (1.0, 1.0, 2.0))
    assert largest_paying_batch(0.5, step, 0.0, BATCH_SIZES) == 4
    assert largest_paying_batch(0.0, FLAT, 0.1, BATCH_SIZES) == 0
