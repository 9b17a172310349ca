from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specrag.decoding.drafter import Drafter
from specrag.decoding.generator import Generation, SpeculativeGenerator
from specrag.decoding.sampling import SamplingParams
from specrag.drafters.none import NoDrafter
from specrag.drafters.suffix import SuffixDrafter
from specrag.errors import ConfigError, InputError
from specrag.locking import BusyError, exclusive
from specrag.models.tiny import tiny_target, tiny_tokenizer
from specrag.training.corpus import generate_corpus
from specrag.training.corpus_report import CorpusReport
from specrag.training.corpus_settings import CorpusSettings
from specrag.training.prompts import TrainingPrompt
from specrag.training.texts import read_texts

SETTINGS = CorpusSettings(max_tokens=6, batch_size=2, seed=3)  # blocks of 16 rows
LARGE = replace(SETTINGS, num_own=3, num_rows=40, max_own_tokens=8)
PROMPTS = [TrainingPrompt(f"what is {'ab' * (n % 5)} {n}?", "x") for n in range(12)]
PROMPTS += [TrainingPrompt("w" * n, "long") for n in range(1, 9)]


def generator(drafter: Drafter | None = None, seed: int = 3) -> SpeculativeGenerator:
    target = tiny_target(seed, vocab_size=80, peakedness=2.0)
    return SpeculativeGenerator(target, tiny_tokenizer(80), drafter or NoDrafter())


def generated(
    out: Path,
    settings: CorpusSettings = SETTINGS,
    *,
    by: SpeculativeGenerator | None = None,
    prompts: list[TrainingPrompt] = PROMPTS,
    excluded: frozenset[str] = frozenset(),
) -> CorpusReport:
    return generate_corpus(by or generator(), prompts, settings, out, excluded=excluded)


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def test_every_prompt_is_answered_as_the_target_answers_it(tmp_path: Path) -> None:
    out = tmp_path / "new" / "a.jsonl"
    by = generator()
    report = generated(out, by=by)
    found = rows(out)
    assert sorted(row["prompt"] for row in found) == sorted(prompt.text for prompt in PROMPTS)
    assert len({row["seed"] for row in found}) == len(found)
    for row in found:
        params = SamplingParams(
            temperature=row["temperature"], max_tokens=SETTINGS.max_tokens, seed=row["seed"]
        )
        alone = by.generate([{"role": "user", "content": row["prompt"]}], params)
        assert isinstance(alone, Generation)
        assert row["response_ids"] == list(alone.token_ids)
        assert row["finished"] == (alone.finish_reason == "stop")
    temperatures = [row["temperature"] for row in found]
    assert temperatures == [(0.0, 0.7, 1.0)[number % 3] for number in range(20)]
    told = report.to_dict()
    assert told["num_rows"] == told["num_new_rows"] == told["num_prompts"] == 20
    assert told["num_tokens"] == sum(len(row["response_ids"]) for row in found)
    assert told["num_finished"] == sum(row["finished"] for row in found)
    assert told["kinds"] == {"x": 12, "long": 8}
    assert told["tokens_per_second"] > 0
    texts = read_texts([out], by.tokenizer)
    assert [list(text.token_ids[text.answer_start :]) for text in texts] == [
        row["response_ids"] for row in found
    ]


def test_the_file_depends_on_the_seed_and_not_on_the_drafter(tmp_path: Path) -> None:
    for name, drafter, seed in (("a", None, 3), ("b", SuffixDrafter(), 3), ("c", None, 4)):
        generated(tmp_path / f"{name}.jsonl", replace(SETTINGS, seed=seed), by=generator(drafter))
    one, same, other = ((tmp_path / f"{name}.jsonl").read_bytes() for name in "abc")
    assert one == same
    assert one != other


class Killed(BaseException):
    pass


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of three blocks that was made in one go."""
    out = tmp_path_factory.mktemp("whole") / "a.jsonl"
    generated(out, LARGE)
    return out


def kill_at(by: SpeculativeGenerator, num_passes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    forward, passes = by.target.forward, 0

    def failing(*args: Any, **options: Any) -> Any:
        nonlocal passes
        passes += 1
        if passes == num_passes:
            raise Killed
        return forward(*args, **options)

    monkeypatch.setattr(by.target, "forward", failing)


@pytest.mark.parametrize(("num_passes", "num_blocks"), [(70, 0), (150, 2)])
def test_a_run_that_was_killed_goes_on_to_the_same_file(
    num_passes: int,
    num_blocks: int,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "a.jsonl"
    by = generator()
    kill_at(by, num_passes, monkeypatch)
    with pytest.raises(Killed):
        generated(out, LARGE, by=by)
    assert (len(rows(out)) if out.exists() else 0) == 16 * num_blocks
    report = generated(out, LARGE)
    assert report.counts.num_rows == 40
    assert report.num_new_rows == 40 - 16 * num_blocks
    for ending in ("", ".own", ".meta.json"):
        one, other = (path.with_name(f"a.jsonl{ending}") for path in (out, whole))
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("num_bytes", [0, 1, 2500, 10_000])
def test_a_file_cut_anywhere_is_completed(num_bytes: int, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole.parent, tmp_path, dirs_exist_ok=True)
    out = tmp_path / "a.jsonl"
    data = out.read_bytes()
    out.write_bytes(data[:num_bytes])
    report = generated(out, LARGE)
    assert out.read_bytes() == data
    kept = data[:num_bytes].count(b"\n")
    assert report.num_new_rows == 40 - (kept if kept == 40 else kept - kept % 16)


def test_a_complete_file_is_left_alone_and_a_larger_one_begins_alike(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    generated(out)
    small = out.read_bytes()
    again = generated(out)
    assert (again.num_new_rows, again.tokens_per_second) == (0, 0.0)
    assert generated(out, replace(SETTINGS, num_rows=5)).counts.num_rows == 20
    assert out.read_bytes() == small
    generated(out, replace(SETTINGS, num_rows=60))
    large = out.read_bytes()
    assert large.startswith(small)
    assert len({(row["prompt"], row["temperature"]) for row in rows(out)}) == 60
    with pytest.raises(ConfigError, match="61 rows are asked for; 20 prompts at 3 temperatures"):
        generated(out, replace(SETTINGS, num_rows=61))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"settings": replace(LARGE, seed=4)}, "begun with seed 3, now it is seed 4"),
        ({"settings": replace(LARGE, max_tokens=7)}, "begun with max_tokens 6"),
        ({"settings": replace(LARGE, temperatures=(0.0,))}, "begun with temperatures"),
        ({"settings": replace(LARGE, batch_size=3)}, "begun with batch_size 2"),
        ({"settings": replace(LARGE, num_own=1)}, "begun with num_own 3"),
        ({"settings": replace(LARGE, own_temperature=0.5)}, "begun with own_temperature"),
        ({"by": generator(seed=4)}, "begun with target"),
        ({"prompts": PROMPTS[1:]}, "begun with prompts"),
        ({"excluded": frozenset({"q"})}, "begun with excluded"),
    ],
)
def test_a_file_begun_in_another_way_is_refused(
    change: dict[str, Any], said: str, whole: Path
) -> None:
    before = whole.read_bytes()
    with pytest.raises(InputError, match=said) as caught:
        generated(whole, **{"settings": LARGE, **change})
    assert "another --out" in str(caught.value.hint)
    assert whole.read_bytes() == before


def test_a_foreign_file_is_never_written_to(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    out.write_text("mine\n", encoding="utf-8")
    with pytest.raises(InputError, match="exists, and is no corpus begun here"):
        generated(out)
    for text in ("{", "[]"):
        (tmp_path / "a.jsonl.meta.json").write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match=r"a\.jsonl.meta\.json' is damaged"):
            generated(out)
    assert out.read_text(encoding="utf-8") == "mine\n"
    with pytest.raises(ConfigError, match="written as JSON lines"):
        generated(tmp_path / "a.jsonl.xz")


def test_a_damaged_row_is_named(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole.parent, tmp_path, dirs_exist_ok=True)
    out = tmp_path / "a.jsonl"
    lines = out.read_text(encoding="utf-8").splitlines()
    for damage, said in (("{", "is not JSON"), ('{"kind":"x"}', "has no 'temperature'")):
        out.write_text("\n".join([lines[0], damage, *lines[2:]]) + "\n", encoding="utf-8")
        with pytest.raises(InputError, match=f"line 2 of .* {said}"):
            generated(out, LARGE)


def test_two_writers_of_one_file_are_one_too_many(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    with exclusive(tmp_path, ".a.jsonl.lock", "", ""), pytest.raises(BusyError):
        generated(out)
    generated(out, prompts=PROMPTS[:1])


def test_excluded_repeated_and_long_prompts_are_left_out(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    prompts = [*PROMPTS, TrainingPrompt("WWW  ", "x"), TrainingPrompt("z" * 100, "x")]
    settings = replace(SETTINGS, max_prompt_tokens=50)
    report = generated(out, settings, prompts=prompts, excluded=frozenset({"wwww", "not there"}))
    counts = report.prompts
    assert (counts.num_excluded, counts.num_repeated, counts.num_too_long) == (1, 1, 1)
    texts = {row["prompt"] for row in rows(out)}
    assert texts == {prompt.text for prompt in PROMPTS} - {"wwww"}


def test_nothing_to_answer_is_an_error(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    with pytest.raises(ConfigError, match="nothing to answer: there are no prompts"):
        generated(out, prompts=[])
    with pytest.raises(ConfigError, match="all 1 prompts stand in excluded files"):
        generated(out, prompts=[TrainingPrompt("A", "x")], excluded=frozenset({"a"}))
    with pytest.raises(InputError, match="all 20 prompts are too long"):
        generated(out, replace(SETTINGS, max_prompt_tokens=1))
    with pytest.raises(InputError, match="all 20 prompts are too long"):
        generated(tmp_path / "b.jsonl", replace(SETTINGS, max_tokens=512))


@pytest.mark.parametrize(
    "change",
    [
        {"max_tokens": 0},
        {"max_prompt_tokens": 0},
        {"max_own_tokens": 0},
        {"batch_size": 0},
        {"num_own": -1},
        {"num_rows": 0},
        {"temperatures": ()},
        {"temperatures": (0.0, 0.0)},
        {"temperatures": (-0.1,)},
        {"temperatures": (float("nan"),)},
        {"own_temperature": 0.0},
        {"own_temperature": float("inf")},
    ],
)
def test_settings_out_of_bounds_are_refused(change: dict[str, Any]) -> None:
    name = next(iter(change))
    with pytest.raises(ConfigError, match=f"{name} must be .*, got"):
        CorpusSettings(**change)


@pytest.mark.parametrize("num_temperatures", [1, 2, 3, 5])
@pytest.mark.parametrize("num_prompts", [1, 2, 3, 7, 10])
def test_no_prompt_meets_a_temperature_twice(num_prompts: int, num_temperatures: int) -> None:
    settings = CorpusSettings(temperatures=tuple(n / 2 for n in range(num_temperatures)))
    pairs = [
        (row % num_prompts, settings.temperature_of(row, num_prompts))
        for row in range(num_prompts * num_temperatures)
    ]
    assert len(set(pairs)) == len(pairs)
