"""A benchmark that was ended goes on where it was, and its report is the one of a whole run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from specrag.errors import ConfigError, InputError
from specrag.evaluation.speed.kept import DECODED_NAME, kept_prompts
from specrag.evaluation.speed.measure import ArmFailure, DecodedPrompt, SpeedRun, measure_speed
from tests.evaluation.speed.scripted import Diary, ScriptedArm, prompt

PROMPTS = [prompt(number) for number in (10, 20, 30, 40)]
KEY = {"model": "toy"}


class PowerCutError(Exception):
    """Ends a run from outside."""


def run(folder: Path | None, diary: Diary, *, cut_after: int = 99, fails_at: int = 99) -> SpeedRun:
    """Measures, and is cut after so many prompts; arm ``b`` fails at a call."""
    others = [ScriptedArm("b", diary, fails_at=fails_at), ScriptedArm("c", diary, own=False)]
    with kept_prompts(folder, PROMPTS, KEY) as done:
        keep, left = done.keep, cut_after

        def cut(found: DecodedPrompt, failures: Sequence[ArmFailure]) -> None:
            nonlocal left
            if not left:
                raise PowerCutError
            left -= 1
            keep(found, failures)

        done.keep = cut  # type: ignore[method-assign]
        return measure_speed(ScriptedArm("a", diary), others, PROMPTS, rounds=2, done=done)


@pytest.mark.parametrize("done", [0, 1, 3, 4])
@pytest.mark.parametrize("fails_at", [99, 0, 3, 5])
def test_it_goes_on_where_it_was(tmp_path: Path, done: int, fails_at: int) -> None:
    whole = run(None, [], fails_at=fails_at)
    if done < 4:
        with pytest.raises(PowerCutError):
            run(tmp_path, [], cut_after=done, fails_at=fails_at)
    else:
        run(tmp_path, [], fails_at=fails_at)
    diary: Diary = []
    # An arm that failed in the first part stays out; else it fails in the second, as it did.
    calls_before = 1 + 2 * done
    later = fails_at - (calls_before - 1) if fails_at >= calls_before else 99
    again = run(tmp_path, diary, fails_at=later if done else fails_at)
    assert again.prompts == whole.prompts
    assert {failure.arm for failure in again.failures} == {fail.arm for fail in whole.failures}
    decoded = [first for name, first, *_ in diary if name == "a?"]
    assert decoded == [10, 20, 30, 40][done:]
    if done == 4:
        assert not diary  # nothing warms up for nothing


@pytest.mark.parametrize("lost", [1, 40])
def test_a_line_that_was_cut_off_is_decoded_again(
    tmp_path: Path, lost: int, caplog: pytest.LogCaptureFixture
) -> None:
    whole = run(tmp_path, [])
    path = tmp_path / DECODED_NAME
    path.write_bytes(path.read_bytes()[:-lost])
    diary: Diary = []
    assert run(tmp_path, diary).prompts == whole.prompts
    assert [first for name, first, *_ in diary if name == "a?"] == [40]
    assert "3 of 4 prompts were measured by an earlier run" in caplog.text
    assert len(path.read_text().splitlines()) == 4
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_another_run_is_refused_unless_it_begins_anew(tmp_path: Path) -> None:
    run(tmp_path, [])
    with (
        pytest.raises(ConfigError, match="holds a run with another model") as caught,
        kept_prompts(tmp_path, PROMPTS, {"model": "other"}),
    ):
        pass
    assert "--restart" in (caught.value.hint or "")
    with kept_prompts(tmp_path, PROMPTS, {"model": "other"}, restart=True) as kept:
        assert not kept.prompts
    with kept_prompts(tmp_path, PROMPTS[::-1], {"model": "other"}) as kept:
        assert not kept.prompts


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    with (
        kept_prompts(tmp_path, PROMPTS, KEY),
        pytest.raises(InputError, match="another run writes"),
        kept_prompts(tmp_path, PROMPTS, KEY),
    ):
        pass


def test_without_a_folder_nothing_is_kept() -> None:
    with kept_prompts(None, PROMPTS, KEY) as kept:
        kept.keep(run(None, []).prompts[0], ())
    assert not kept.prompts
