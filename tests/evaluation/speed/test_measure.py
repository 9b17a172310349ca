"""The protocol: order, lengths, rounds, and arms that give up."""

from __future__ import annotations

from collections import Counter

import pytest

from specrag.errors import ModelError
from specrag.evaluation.speed.measure import measure_speed
from tests.evaluation.speed.scripted import Diary, ScriptedArm, prompt

PROMPTS = [prompt(number) for number in (10, 20, 30, 40)]


def arms(diary: Diary, names: str = "abc") -> tuple[ScriptedArm, list[ScriptedArm]]:
    first, *others = (ScriptedArm(name, diary) for name in names)
    return first, others


def test_arms_take_turns_prompt_by_prompt_and_each_goes_first_as_often() -> None:
    diary: Diary = []
    plain, others = arms(diary)
    measure_speed(plain, others, PROMPTS[:3], rounds=3, warm_ups=0)
    timed = [(name, asked) for name, asked, *_ in diary if name != "a?"]
    assert [asked for _, asked in timed] == [10] * 9 + [20] * 9 + [30] * 9
    rounds = ["".join(name for name, _ in timed[at : at + 3]) for at in range(0, 27, 3)]
    assert all(sorted(order) == ["a", "b", "c"] for order in rounds)
    assert Counter(order[0] for order in rounds) == {"a": 3, "b": 3, "c": 3}


def test_with_one_round_the_prompts_turn_the_order() -> None:
    diary: Diary = []
    plain, others = arms(diary)
    measure_speed(plain, others, PROMPTS[:3], rounds=1, warm_ups=0)
    timed = [name for name, *_ in diary if name != "a?"]
    assert "".join(timed) == "abcbcacab"


def test_every_arm_warms_up_before_anything_counts() -> None:
    diary: Diary = []
    plain, others = arms(diary, "ab")
    run = measure_speed(plain, others, PROMPTS[:2], rounds=1, warm_ups=2)
    assert [name for name, *_ in diary[:4]] == ["a", "b"] * 2
    assert {asked for _, asked, *_ in diary[:4]} == {10}
    assert [len(samples) for found in run.prompts for samples in found.samples.values()] == [1] * 4


def test_plain_decoding_fixes_how_long_the_answers_are() -> None:
    diary: Diary = []
    plain = ScriptedArm("a", diary, length=lambda prompt: prompt // 5)
    chatty = ScriptedArm("b", diary, length=lambda prompt: 50)
    curt = ScriptedArm("c", diary, length=lambda prompt: 1)
    run = measure_speed(plain, [chatty, curt], PROMPTS, max_tokens=7, rounds=2)
    for found, length in zip(run.prompts, (2, 4, 6, 7), strict=True):
        for samples in found.samples.values():
            assert [len(sample.token_ids) for sample in samples] == [length] * 2
    timed = [(most, least) for name, _, most, least in diary[3:] if name != "a?"]
    assert all(most == least for most, least in timed)


def test_lengths_can_be_left_to_the_arms() -> None:
    diary: Diary = []
    plain, curt = ScriptedArm("a", diary), ScriptedArm("b", diary, length=lambda prompt: 3)
    run = measure_speed(plain, [curt], PROMPTS[:1], max_tokens=7, rounds=1, same_length=False)
    found = run.prompts[0].samples
    assert {name: len(samples[0].token_ids) for name, samples in found.items()} == {"a": 7, "b": 3}
    assert {entry[2:] for entry in diary} == {(7, 0)}


@pytest.mark.parametrize("fails_at", [0, 1, 3, 6])
def test_an_arm_that_fails_is_left_out_from_there(fails_at: int) -> None:
    diary: Diary = []
    plain, good = ScriptedArm("a", diary), ScriptedArm("b", diary)
    bad = ScriptedArm("c", diary, fails_at=fails_at)
    run = measure_speed(plain, [bad, good], PROMPTS, rounds=2, warm_ups=1)
    # One warm-up and two rounds a prompt; a prompt counts when all its rounds were done.
    done = max(0, (fails_at - 1) // 2)
    assert ["c" in found.samples for found in run.prompts] == [True] * done + [False] * (4 - done)
    assert all({"a", "b"} <= found.samples.keys() for found in run.prompts)
    where = PROMPTS[done].id
    assert [(f.arm, f.prompt_id, f.message) for f in run.failures] == [
        ("c", where, "the engine is gone")
    ]
    assert sum(name == "c" for name, *_ in diary) == fails_at + 1
    assert run.memory_mb == {"a": 100.0, "b": 100.0}


def test_without_plain_decoding_there_is_nothing_to_hold_arms_against() -> None:
    with pytest.raises(ModelError, match="the engine is gone"):
        measure_speed(ScriptedArm("a", fails_at=2), [ScriptedArm("b")], PROMPTS)


@pytest.mark.parametrize("fails_at", [None, 2])
def test_progress_counts_every_answer_once(fails_at: int | None) -> None:
    told: list[tuple[int, int]] = []
    plain, other = ScriptedArm("a"), ScriptedArm("b", fails_at=fails_at)
    measure_speed(
        plain,
        [other],
        PROMPTS,
        rounds=3,
        warm_ups=1,
        on_progress=lambda done, total: told.append((done, total)),
    )
    assert [done for done, _ in told] == list(range(1, len(told) + 1))
    assert told[0] == (1, 2 * (1 + 3 * 4))
    assert told[-1] == ((26, 26) if fails_at is None else (16, 16))


def test_arms_of_one_name_would_be_mixed_up() -> None:
    with pytest.raises(AssertionError, match="names of arms"):
        measure_speed(ScriptedArm("a"), [ScriptedArm("a")], PROMPTS)
