"""Time is kept, slow candidates drop out, and all are measured on the same prompts."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrag.evaluation.tuning.candidate import Candidate
from specrag.evaluation.tuning.race import Race, all_of, halving
from tests.evaluation.tuning.played import World, prompts

CANDIDATES = [Candidate("suffix", gamma, 1, "fixed") for gamma in range(1, 13)]


def speed(candidate: Candidate, prompt: int) -> float:
    return 1 + candidate.num_speculative_tokens / 10


def race_of(world: World, count: int = 12, seconds: float = 600.0) -> Race:
    return Race(world.plain, world.open, prompts(count), seconds=seconds, clock=world.clock)


def decoded(world: World) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for name, number in world.decoded:
        found.setdefault(name, set()).add(number)
    return found


def test_with_time_enough_everything_is_measured_on_all_prompts() -> None:
    world = World(speed)
    race = race_of(world)
    run = all_of(race, "all", CANDIDATES, until=0.5)
    assert len(run.prompts) == 12
    assert [result.candidate for result in race.results(run, CANDIDATES)] == CANDIDATES[::-1]
    assert race.results(run, CANDIDATES)[0].speedup == pytest.approx(2.2)
    assert race.notes == []


def test_without_time_there_are_fewer_prompts_and_that_is_said() -> None:
    world = World(speed)
    race = race_of(world, seconds=30.0)
    run = all_of(race, "drafters", CANDIDATES, until=0.5, warm_ups=1)
    assert 2 <= len(run.prompts) < 12
    assert race.notes == [
        f"drafters were measured on {len(run.prompts)} of 12 prompts, for lack of time"
    ]
    assert world.now <= 15.0


def test_the_slower_half_drops_out() -> None:
    world = World(speed)
    race = race_of(world)
    run, left = halving(race, "settings", CANDIDATES, keep=3, until=1.0)
    assert left[:3] == CANDIDATES[:-4:-1]
    prompts_of = {name: len(numbers) for name, numbers in decoded(world).items()}
    assert prompts_of.pop("none") == 12
    assert Counter(prompts_of.values()) == {3: 6, 9: 3, 12: 3}
    assert len(race.results(run, CANDIDATES)) == 12
    assert race.notes == []


def test_what_there_is_no_time_for_is_counted() -> None:
    world = World(speed)
    race = race_of(world, seconds=5.0)
    run, left = halving(race, "settings", CANDIDATES, keep=3, until=1.0)
    measured = [result.candidate for result in race.results(run, CANDIDATES)]
    assert sorted(measured, key=CANDIDATES.index) == CANDIDATES[: len(measured)]
    assert 3 <= len(measured) < 12
    missing = 12 - len(measured)
    assert race.notes == [
        f"{missing} settings were not measured, for lack of time: {missing} of suffix"
    ]
    assert set(left) == set(measured)
    assert world.now <= 5.0


@settings(deadline=None, max_examples=15)
@given(st.integers(2, 15), st.integers(1, 30), st.floats(0.1, 400.0))
def test_time_runs_over_by_no_more_than_the_least_that_is_measured(
    count: int, num_candidates: int, seconds: float
) -> None:
    world = World(lambda candidate, prompt: 1.0)
    race = race_of(world, count, seconds)
    tried = [Candidate("suffix", gamma, 1, "fixed") for gamma in range(1, num_candidates + 1)]
    run, left = halving(race, "settings", tried, keep=3, until=1.0)
    # Three candidates beside plain decoding, which comes twice, on two prompts, and one look.
    least = 0.32 * (2 * (3 + 2) + 1)
    assert world.now <= max(seconds, least) + 1e-6
    assert min(3, num_candidates) <= len(left)
    assert {result.candidate for result in race.results(run, tried)} >= set(left)


@pytest.mark.parametrize("prompt", [0, 1, 5])
def test_candidates_that_fail_drop_out_with_a_note(prompt: int) -> None:
    broken = CANDIDATES[-1]
    world = World(speed, failing={broken.name: prompt})
    race = race_of(world)
    run, left = halving(race, "settings", CANDIDATES, keep=3, until=1.0)
    assert broken not in left
    assert broken not in [result.candidate for result in race.results(run, CANDIDATES)]
    assert race.notes == [f"{broken.name} failed: it gave up"]


def test_all_of_a_round_decode_the_same_prompts_in_turn() -> None:
    world = World(speed)
    race = race_of(world, 4)
    world.decoded.clear()
    race.measure("final", CANDIDATES[:2], race.prompts, 2)
    for number in range(4):
        names = [name for name, prompt in world.decoded if prompt == number]
        assert names[0] == "none"  # the look that says how long the answer is
        assert Counter(names[1:]) == {"none": 2, CANDIDATES[0].name: 2, CANDIDATES[1].name: 2}


def test_progress_is_told_by_the_stage() -> None:
    world = World(speed)
    told: list[tuple[str, int, int]] = []
    race = Race(
        world.plain,
        world.open,
        prompts(3),
        clock=world.clock,
        on_progress=lambda stage, done, total: told.append((stage, done, total)),
    )
    race.measure("final", CANDIDATES[:1], race.prompts, 2)
    assert told == [("final", done, 12) for done in range(1, 13)]
