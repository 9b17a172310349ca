"""A made-up machine with a known best drafter and setting: the search finds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from specrag.decoding.budget import SpeculationConfig
from specrag.errors import ModelError
from specrag.evaluation.tuning.candidate import Candidate
from specrag.evaluation.tuning.race import Race
from specrag.evaluation.tuning.search import Findings, search
from tests.evaluation.tuning.played import COSTS, World, prompts

LEVELS = {"suffix": 0.0, "prompt_lookup": 0.0, "draft:m": 0.2}
ACCEPTED = {"suffix": 2, "prompt_lookup": 1, "draft:m": 4}


def found(
    speed: Callable[[Candidate, int], float],
    *,
    seconds: float = 3600.0,
    drafters: tuple[str, ...] = ("suffix", "prompt_lookup", "draft:m"),
    failing: Mapping[str, int] | None = None,
    base: SpeculationConfig | None = None,
) -> tuple[Findings, World]:
    world = World(speed, ACCEPTED, failing or {})
    race = Race(world.plain, world.open, prompts(8), seconds=seconds, clock=world.clock)
    return search(race, drafters, COSTS, LEVELS.__getitem__, base=base), world


def chains(best: int) -> Callable[[Candidate, int], float]:
    """Fixed chains of one length are best, and other lengths worse by how far they are off."""

    def speed(candidate: Candidate, prompt: int) -> float:
        if candidate.policy != "fixed" or candidate.branching > 1:
            return 1.05
        off = abs(candidate.num_speculative_tokens - best)
        return max(0.5, 1.6 - 0.15 * off) - 0.1 * (candidate.drafter != "suffix")

    return speed


@pytest.mark.parametrize("best", [1, 4, 8])
def test_the_best_length_is_found(best: int) -> None:
    result, _ = found(chains(best))
    advice = result.advice
    assert (advice.drafter, advice.num_speculative_tokens) == ("suffix", best)
    assert (advice.branching, advice.policy, advice.speculate) == (1, "fixed", True)
    assert len(result.finals) == 3
    assert result.finals[0].speedup == pytest.approx(1.6)
    assert result.finals[0].row["num_prompts"] == 8


def test_a_tree_that_is_faster_is_found() -> None:
    def speed(candidate: Candidate, prompt: int) -> float:
        return 1.5 if (candidate.branching, candidate.policy) == (4, "fixed") else 1.1

    advice = found(speed)[0].advice
    assert (advice.branching, advice.policy, advice.speculate) == (4, "fixed", True)


def test_a_draft_model_that_is_faster_is_found() -> None:
    advice = found(lambda candidate, _: 1.9 if candidate.drafter == "draft:m" else 1.3)[0].advice
    assert (advice.drafter, advice.policy) == ("draft:m", "goodput")
    assert advice.break_even_acceptance == pytest.approx(0.25, abs=1e-3)


def test_plain_decoding_wins_where_nothing_is_faster() -> None:
    result, _ = found(lambda candidate, prompt: 0.9)
    assert (result.advice.drafter, result.advice.speculate) == ("none", False)


def test_plain_decoding_is_kept_where_the_gain_depends_on_the_prompt() -> None:
    # The mean is above 1, yet a few other prompts would have turned it round.
    result, _ = found(lambda candidate, prompt: 1.6 if prompt in (0, 5) else 0.93)
    assert result.finals[0].speedup > 1
    assert not result.advice.speculate


def test_where_all_are_equal_the_simplest_is_advised() -> None:
    advice = found(lambda candidate, prompt: 1.4)[0].advice
    assert advice.drafter in ("suffix", "prompt_lookup")
    assert advice.policy == "goodput"


def test_acceptance_is_known_by_depth_for_each_drafter() -> None:
    result, _ = found(lambda candidate, prompt: 1.2)
    shares = {
        drafter.drafter: drafter.figures["acceptance_by_depth"] for drafter in result.drafters
    }
    for drafter, accepted in ACCEPTED.items():
        assert [share > 0.5 for share in shares[drafter][:6]] == [
            depth < accepted for depth in range(6)
        ]
    assert {drafter.drafter: drafter.level for drafter in result.drafters} == LEVELS


def test_settings_that_are_not_tuned_are_those_of_the_user() -> None:
    base = SpeculationConfig(9, branching=2, policy="recent_acceptance")
    result, _ = found(lambda candidate, prompt: 0.5, base=base)
    tried = {
        found.candidate.num_speculative_tokens
        for found in result.sweep
        if found.candidate.policy != "fixed"
    }
    assert tried == {9}
    advice = result.advice
    kept = (advice.num_speculative_tokens, advice.branching, advice.policy)
    assert kept == (9, 2, "recent_acceptance")


def test_a_short_time_is_kept_and_what_was_cut_is_said() -> None:
    result, world = found(chains(4), seconds=25.0)
    assert world.now <= 26.0  # the pace of the finalists is not known before
    assert any("settings were not measured" in note for note in result.notes)
    assert result.finals


def test_next_to_no_time_still_ends_in_an_advice() -> None:
    result, world = found(chains(4), seconds=0.5)
    assert world.now <= 20.0
    assert any("finalists were measured on 5 of 8 prompts" in note for note in result.notes)
    assert len(result.finals) == 1
    assert result.advice.reasons


def test_a_drafter_that_fails_is_left_out() -> None:
    broken = Candidate("prompt_lookup", 15, 4, "goodput").name
    result, _ = found(chains(4), failing={broken: 0})
    assert [drafter.drafter for drafter in result.drafters] == ["suffix", "draft:m"]
    assert any("it gave up" in note for note in result.notes)
    assert result.advice.drafter == "suffix"


def test_when_all_fail_that_is_an_error() -> None:
    broken = Candidate("suffix", 15, 4, "goodput").name
    with pytest.raises(ModelError, match="every drafter failed"):
        found(chains(4), drafters=("suffix",), failing={broken: 0})
